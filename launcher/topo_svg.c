/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan in a picture: the topology with the ranks as notes on its cores
 * and GPUs and a colour a rank, saved as XML and drawn by hwloc's lstopo.
 */
#include "config.h"

#include "core/ddp_child.h"
#include "launcher/topo.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Light enough for black text, in turn. */
static const char *const colours[] = {
	"#a6cee3", "#b2df8a", "#fb9a99", "#fdbf6f", "#cab2d6", "#ffff99",
	"#8dd3c7", "#fccde5", "#d9d9d9", "#ccebc5", "#bebada", "#ffed6f",
};

#define COLOURS (sizeof(colours) / sizeof(colours[0]))

static int mark(struct topo_plan *p, hwloc_obj_t obj, unsigned rank, bool note)
{
	char text[64];

	snprintf(text, sizeof(text), "Background=%s",
		 colours[rank % COLOURS]);
	if (hwloc_obj_add_info(obj, "lstopoStyle", text))
		return -1;
	snprintf(text, sizeof(text), "%u", rank);
	if (hwloc_obj_add_info(obj, "Rank", text))
		return -1;
	if (!note)
		return 0;
	snprintf(text, sizeof(text), "rank %u", rank);
	/* NULL too where Misc objects are filtered out. */
	(void)hwloc_topology_insert_misc_object(p->topo->hw, obj, text);
	return 0;
}

static int annotate(struct topo_plan *p)
{
	for (unsigned r = 0; r < p->plan.nranks; r++) {
		const struct ddp_bind_rank *k = &p->plan.ranks[r];
		hwloc_obj_t last = NULL;

		for (unsigned i = 0; i < k->ngpus; i++)
			if (mark(p, p->topo->gpu[p->gpus[k->gpus[i]]].obj, r,
				 true))
				return -1;
		if (p->plan.policy == DDP_BIND_NONE)
			continue;
		for (unsigned i = 0; i < k->npus; i++) {
			hwloc_obj_t pu = p->pu[k->pus[i]];
			hwloc_obj_t core = hwloc_get_ancestor_obj_by_type(
				p->topo->hw, HWLOC_OBJ_CORE, pu);

			if (mark(p, pu, r, !core))
				return -1;
			if (core && core != last && mark(p, core, r, true))
				return -1;
			last = core;
		}
	}
	return 0;
}

/* Become lstopo. 127: it is not there. */
static void run_lstopo(const char *xml, const char *file)
{
	const char *const names[] = { "lstopo", "lstopo-no-graphics" };

	ddp_child_signals();
	for (unsigned i = 0; i < 2; i++)
		execlp(names[i], names[i], "--if", "xml", "-i", xml, "--of",
		       "svg", "-f", file, (char *)NULL);
	_exit(errno == ENOENT ? 127 : 126);
}

static int draw(const char *xml, const char *file, struct ddp_err *err)
{
	pid_t pid = fork();
	int status;

	if (pid < 0)
		return ddp_err_set(err, DDP_ESYS, "fork: %s", strerror(errno));
	if (!pid)
		run_lstopo(xml, file);
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return ddp_err_set(err, DDP_ESYS, "waitpid: %s",
					   strerror(errno));
	if (WIFEXITED(status) && !WEXITSTATUS(status))
		return 0;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
		return ddp_err_set(err, DDP_ESYS, "--svg needs lstopo, which "
				   "is not in PATH; Debian, Ubuntu: apt-get "
				   "install hwloc (or hwloc-nox); RHEL, SUSE: "
				   "dnf install hwloc");
	return ddp_err_set(err, DDP_ESYS, "lstopo failed and did not write %s",
			   file);
}

int topo_show_svg(struct topo_plan *p, const char *file, struct ddp_err *err)
{
	const char *dir = getenv("TMPDIR");
	char path[4096];
	int fd, rc = -1;

	if (annotate(p))
		return ddp_err_set(err, DDP_ENOMEM, "out of memory");
	if (snprintf(path, sizeof(path), "%s/ddp-topo.XXXXXX",
		     dir && *dir ? dir : "/tmp") >= (int)sizeof(path))
		return ddp_err_set(err, DDP_EINVAL, "TMPDIR is too long");
	fd = mkstemp(path);
	if (fd < 0)
		return ddp_err_set(err, DDP_ESYS, "cannot write %s: %s", path,
				   strerror(errno));
	close(fd);
	if (hwloc_topology_export_xml(p->topo->hw, path, 0))
		ddp_err_set(err, DDP_ESYS, "hwloc cannot write %s", path);
	else
		rc = draw(path, file, err);
	unlink(path);
	return rc;
}
