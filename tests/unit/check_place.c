/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The places of the ranks of a step, on small nodes. Most are on "here 8":
 *
 *	bus id	NUMA	number	/dev/nvidiaN	near CPUs
 *	10:00.0	1	0	2		4-7
 *	20:00.0	0	1	0		0-3
 *	30:00.0	1	2	3		4-7
 *	40:00.0	0	3	1		0-3
 *
 * An answer is shown as DEVICES|NEW LIST|CPUS.
 */
#define _GNU_SOURCE
#include "config.h"

#include "tests/unit/check_main.h"
#include "tests/unit/place_node.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const buses[] = { "0000:10:00.0", "0000:20:00.0",
				     "0000:30:00.0", "0000:40:00.0" };
static const unsigned minors[] = { 2, 0, 3, 1 };
static const char *const uuids[] = {
	"GPU-8932f937-d72c-4106-c12f-20bd9faed9f6",
	"GPU-8932f938-aaaa-bbbb-cccc-20bd9faed9f6",
	"GPU-11112222-3333-4444-5555-666677778888",
	"GPU-99990000-3333-4444-5555-666677778888" };

static void write_driver(void)
{
	for (unsigned i = 0; i < 4; i++)
		node_driver(buses[i], minors[i], uuids[i]);
}

/* n tasks on the node, which may run anywhere and open everything. */
static void here(unsigned n)
{
	write_driver();
	node_load(node_xml("here 8"), n, "0-7");
	for (unsigned i = 0; i < n; i++)
		node.ask[i].there = node.ask[i].open = 0xf;
}

static void list_of(unsigned i, const char *list)
{
	node.ask[i].list_set = true;
	strcpy(node.ask[i].list, list);
}

static void answers(const char *const *want)
{
	ck_assert_uint_eq(node_make(), 0);
	for (unsigned i = 0; i < node.n; i++)
		ck_assert_msg(!strcmp(node_answer(i), want[i]), "rank %u: %s "
			      "instead of %s (%s)", i, node_answer(i), want[i],
			      node.out[0].warning);
}

#define ANSWERS(...) answers((const char *const []){ __VA_ARGS__ })

static void says(const char *text, const char *part)
{
	ck_assert_msg(part[0] ? strstr(text, part) != NULL : !text[0],
		      "\"%s\" not in: %s", part, text);
}

START_TEST(node_view)
{
	here(4);
	node_list("0,1,2,3");
	ANSWERS("0|1,3,0,2|0-1", "1|1,3,0,2|2-3", "2|1,3,0,2|4-5",
		"3|1,3,0,2|6-7");
	says(node.out[0].warning, "");
	says(node.out[0].hint, "");
	says(node.out[2].shown, "GPU 0000:10:00.0, CPUs 4-5 (2 cores), NUMA 1");
	for (unsigned i = 0; i < 4; i++) {
		ck_assert_uint_eq(node.out[i].view, DDP_VIEW_NODE);
		ck_assert_uint_eq(node.out[i].cores, 2);
		ck_assert(node.out[i].pci_order && node.out[i].set_nodes);
		ck_assert_uint_eq(node.out[i].nodes[0], i < 2 ? 1 : 2);
	}
}
END_TEST

/* Where minors are not known, nothing is lost while nothing is withheld. */
START_TEST(no_driver)
{
	node_load(node_xml("here 8"), 2, "0-7");
	node_list("3,2");
	ANSWERS("0|3,2|0-3", "1|3,2|4-7");
	node_again(2, "0-7");
	for (unsigned i = 0; i < 2; i++) {
		node.ask[i].there = 0xf;
		node.ask[i].open = 1U << i;
	}
	node_list("0");
	ANSWERS("0|-|0-3", "0|-|4-7");
	says(node.out[0].warning, "GPU 0 is not in this node's topology");
	/* Half of the driver's files: a minor that is not there. */
	node_driver(buses[0], 9, "GPU-????????");
	node_load(node_xml("here 8"), 1, "0-7");
	ck_assert_int_eq(node.id[0].nvidia, 9);
	ck_assert_str_eq(node.id[0].uuid, "");
	ck_assert_int_eq(node.id[1].nvidia, -1);
}
END_TEST

START_TEST(gaps)
{
	here(2);
	node_list("2,3");
	ANSWERS("0|3,2|0-3", "1|3,2|4-7");
	node_again(3, "0-7");
	node_list("0,2,3");
	ANSWERS("0|3,0,2|0-2", "1|3,0,2|3-5", "2|3,0,2|6-7");
	node_again(2, "0-7");
	node_list("0,9");	/* 9: not of this node, but it is given */
	ck_assert_uint_eq(node_make(), 0);
	says(node.out[0].warning, "GPU 9 is not in");
}
END_TEST

/* More ranks than GPUs: entry LOCAL_RANK modulo 4, and the CPUs go by it. */
START_TEST(uneven)
{
	for (unsigned n = 4; n <= 8; n++) {
		struct ddp_vis v;

		here(n);
		node_list("0,1,2,3");
		ck_assert_uint_eq(node_make(), 0);
		ck_assert(!ddp_vis_parse(&v, node.out[0].list) && v.n == 4);
		for (unsigned i = 0; i < n; i++) {
			const struct ddp_placed *out = &node.out[i];
			unsigned long near;

			ck_assert_uint_eq(out->device, i % 4);
			ck_assert_uint_eq(out->ndevices, 1);
			ck_assert_str_eq(out->list, node.out[0].list);
			near = ddp_vis_index(v.word[i % 4]) % 2 ? 0x0f : 0xf0;
			ck_assert(out->cpus[0] && !(out->cpus[0] & ~near));
		}
		node_free();
	}
}
END_TEST

START_TEST(several_gpus)
{
	here(2);
	node_list("0,1,2,3");
	ANSWERS("0,2|1,0,3,2|0-3", "1,3|1,0,3,2|4-7");
	node_again(1, "0-7");
	node_list("0,1,2,3");
	ANSWERS("0,1,2,3|1,3,0,2|0-7");
	/* Everywhere is nowhere: the kernel's way is best. */
	ck_assert(!node.out[0].set_nodes);
	node_again(3, "0-7");
	node_list("0,1,2,3");
	ck_assert_uint_eq(node_make(), 0);
	for (unsigned i = 0; i < 3; i++)
		ck_assert_uint_eq(node.out[i].device, i);
	ck_assert_uint_eq(node.out[0].ndevices + node.out[1].ndevices +
			  node.out[2].ndevices, 4);
}
END_TEST

/* Case 28 */
START_TEST(own_gpus)
{
	here(4);
	for (unsigned i = 0; i < 4; i++)
		list_of(i, (const char *const []){ "0", "1", "2", "3" }[i]);
	ANSWERS("0|-|4-5", "0|-|0-1", "0|-|6-7", "0|-|2-3");
	ck_assert_uint_eq(node.out[0].view, DDP_VIEW_RANK);
	says(node.out[0].hint, "its device is index 0");
	/* Confined, each task's own is its "0"; device file i is i's. */
	node_again(4, "0-7");
	node_list("0");
	for (unsigned i = 0; i < 4; i++) {
		node.ask[i].there = 0xf;
		node.ask[i].open = 1U << i;
	}
	ANSWERS("0|-|0-1", "0|-|2-3", "0|-|4-5", "0|-|6-7");
	ck_assert_uint_eq(node.out[0].view, DDP_VIEW_RANK);
}
END_TEST

/* The same number is another GPU for each, and one is seen by both. */
START_TEST(own_gpus_overlap)
{
	here(2);
	for (unsigned i = 0; i < 2; i++)
		node.ask[i].there = 0xf;
	node.ask[0].open = 1 << 1;	/* bus 40 */
	node.ask[1].open = 0xe;		/* bus 10, 30, 40 */
	list_of(0, "0");
	list_of(1, "0,1,2");
	ck_assert_uint_eq(node_make(), 0);
	ck_assert_str_eq(node.out[0].devices, "0");
	says(node.out[1].shown, "GPU 0000:40:00.0, 0000:10:00.0, 0000:30:00.0");
	ck_assert_str_eq(node.out[1].devices, "2,0,1");
	ck_assert_uint_eq(node.out[1].ndevices, 3);
	node_again(2, "0-7");
	list_of(0, "2,0");	/* not confined, in other orders */
	list_of(1, "0,2");
	ck_assert_uint_eq(node_make(), 0);
	ck_assert_uint_eq(node.out[0].ndevices, 2);
	ck_assert_uint_eq(node.out[1].ndevices, 2);
	says(node.out[1].shown, "GPU 0000:10:00.0, 0000:30:00.0");
}
END_TEST

START_TEST(gpus_option)
{
	here(4);
	node_list("0,1,2,3");
	for (unsigned i = 0; i < 4; i++)
		node.ask[i].req.gpus = DDP_GPUS_RANK;
	ANSWERS("0|1|0-1", "0|3|2-3", "0|0|4-5", "0|2|6-7");
	node_again(4, "0-7");
	for (unsigned i = 0; i < 4; i++) {
		list_of(i, (const char *const []){ "0", "1", "2", "3" }[i]);
		node.ask[i].req.gpus = DDP_GPUS_NODE;
	}
	ANSWERS("0|1,3,0,2|0-1", "1|1,3,0,2|2-3", "2|1,3,0,2|4-5",
		"3|1,3,0,2|6-7");
	says(node.out[0].hint, "");
	node_again(2, "0-7");
	for (unsigned i = 0; i < 2; i++) {
		list_of(i, i ? "1" : "0");
		node.ask[i].req.gpus = DDP_GPUS_NODE;
		node.ask[i].req.gpu_said = DDP_GPU_SAID_BIND;
	}
	ANSWERS("0|-|4-7", "0|-|0-3");
	says(node.out[0].hint, "--gpu-bind was given and holds");
	node_again(2, "0-7");
	node_list("0");
	for (unsigned i = 0; i < 2; i++) {
		node.ask[i].there = 0xf;
		node.ask[i].open = 1U << i;
		node.ask[i].req.gpus = DDP_GPUS_NODE;
	}
	ANSWERS("0|-|0-3", "0|-|4-7");
	says(node.out[0].hint, "ConstrainDevices");
}
END_TEST

/* A list of all GPUs that is too long to be one: what is had is kept. */
START_TEST(too_long_together)
{
	here(48);
	for (unsigned i = 0; i < 48; i++) {
		char word[DDP_VIS_WORD];

		(void)snprintf(word, sizeof(word), "GPU-%02u%085u", i, 0);
		list_of(i, word);
		node.ask[i].req.gpus = DDP_GPUS_NODE;
	}
	ck_assert_uint_eq(node_make(), 0);
	says(node.out[0].hint, "a list of all GPUs is too long");
	for (unsigned i = 0; i < 48; i++) {
		ck_assert(!node.out[i].set_list);
		ck_assert_uint_eq(node.out[i].device, 0);
		ck_assert_uint_le(node.out[i].ndevices, 1);
	}
}
END_TEST

/* Case 31 */
START_TEST(uuids_and_prefixes)
{
	here(4);
	node_list("GPU-8932f937,GPU-8932F938,3,MIG-GPU-11112222-3333-4444-"
		  "5555-666677778888/1/0");
	/* CUDA shows a process one MIG device, so each rank sees its own. */
	ANSWERS("0|GPU-8932F938|0-1", "0|3|2-3", "0|GPU-8932f937|4-5",
		"0|MIG-GPU-11112222-3333-4444-5555-666677778888/1/0|6-7");
	says(node.out[0].hint, "CUDA shows a process one MIG device");
	node_again(4, "0-7");
	node_list("GPU-8932f937,GPU-8932F938,3,MIG-GPU-11112222-3333-4444-"
		  "5555-666677778888/1/0");
	for (unsigned i = 0; i < 4; i++)
		node.ask[i].req.gpus = DDP_GPUS_NODE;
	ANSWERS("0|GPU-8932F938,3,GPU-8932f937,MIG-GPU-11112222-3333-4444-"
		"5555-666677778888/1/0|0-1", "1|GPU-8932F938,3,GPU-8932f937,"
		"MIG-GPU-11112222-3333-4444-5555-666677778888/1/0|2-3",
		"2|GPU-8932F938,3,GPU-8932f937,MIG-GPU-11112222-3333-4444-"
		"5555-666677778888/1/0|4-5", "3|GPU-8932F938,3,GPU-8932f937,"
		"MIG-GPU-11112222-3333-4444-5555-666677778888/1/0|6-7");
	says(node.out[0].warning, "");
	ck_assert_uint_eq(place_find_gpu(&node, node.ask, uuids[2]), 2);
	ck_assert_uint_eq(place_find_gpu(&node, node.ask, "GPU-893"),
			  TOPO_GPU_UNKNOWN);
	ck_assert_uint_eq(place_find_gpu(&node, node.ask, "GPU-9"),
			  TOPO_GPU_UNKNOWN);
	ck_assert_uint_eq(place_find_gpu(&node, node.ask, "GPU-7777"),
			  TOPO_GPU_UNKNOWN);
	ck_assert_uint_eq(place_find_gpu(&node, node.ask, "gpu-8932f937"),
			  TOPO_GPU_UNKNOWN);
	node_again(2, "0-7");
	node_list("GPU-893,GPU-9999");	/* the first is ambiguous */
	ck_assert_uint_eq(node_make(), 0);
	says(node.out[0].warning, "GPU GPU-893 is not in");
}
END_TEST

static void fake_nvml(const char *which, const char *fails)
{
	char from[512], path[PATH_MAX], to[128];
	const char *top = getenv("top_builddir");

	place_mig_end();
	(void)snprintf(from, sizeof(from), "%s/tests/fakes/.libs/%s.so",
		       top ? top : ".", which);
	(void)snprintf(to, sizeof(to), "%s/libs/libnvidia-ml.so.1", node_dir);
	(void)unlink(to);
	if (which[0])
		ck_assert(realpath(from, path) && !symlink(path, to));
	setenv("FAKE_NVML_FAILS", fails, 1);
}

START_TEST(mig)
{
	static const char *const calls[] = { "init", "uuid", "parent", "pci" };
	char bus[TOPO_BUS];

	fake_nvml("", "");
	ck_assert_int_eq(place_mig_bus("MIG-1", bus, sizeof(bus)), -1);
	fake_nvml("fake_nvml", "shutdown");
	ck_assert_int_eq(place_mig_bus("MIG-1", bus, sizeof(bus)), 0);
	ck_assert_str_eq(bus, buses[2]);
	ck_assert_int_eq(place_mig_bus("MIG-2", bus, sizeof(bus)), -1);
	ck_assert_int_eq(place_mig_bus("MIG-1", bus, 4), -1);
	here(2);
	node_list("MIG-1,MIG-GPU-8932f938-aaaa-bbbb-cccc-20bd9faed9f6/0/0");
	ck_assert_uint_eq(node_make(), 0);
	says(node.out[0].warning, "");
	ck_assert_str_eq(node_cpus(node.out[0].cpus), "0-3");
	ck_assert_str_eq(node_cpus(node.out[1].cpus), "4-7");
	for (unsigned i = 0; i < CHECK_COUNT(calls); i++) {
		fake_nvml("fake_nvml", calls[i]);
		ck_assert_int_eq(place_mig_bus("MIG-1", bus, sizeof(bus)), -1);
	}
	fake_nvml("fake_nvml_old", "");
	ck_assert_int_eq(place_mig_bus("MIG-1", bus, sizeof(bus)), -1);
	node_again(1, "0-7");
	node_list("MIG-1");
	ANSWERS("0|MIG-1|0-7");
	says(node.out[0].warning, "GPU MIG-1 is not in");
}
END_TEST

/* ROCm counts as the kernel's compute driver does. */
START_TEST(amd)
{
	node_kfd(0, 0, 0);
	node_kfd(1, 0, 0);
	node_kfd(2, 304, 0x30);
	node_kfd(3, 304, 0x10);
	node_kfd(10, 304, 0x20);
	node_kfd(4, 304, 0x40);
	node_kfd(5, 304, 0x99);
	node_write("sys/class/kfd/kfd/topology/nodes/6/properties", "");
	node_write("sys/class/kfd/kfd/topology/nodes/7/properties",
		   "simd_count x\nlocation_id\n");
	node_load(node_xml("amd"), 4, "0-7");
	for (unsigned i = 0; i < 4; i++)
		node.ask[i].render_there = node.ask[i].render_open = 0xf;
	node_list("0,1,2,3");
	ANSWERS("0|3,2,1,0|0-1", "1|3,2,1,0|2-3", "2|3,2,1,0|4-5",
		"3|3,2,1,0|6-7");
	node_again(2, "0-7");
	node_list("0");
	for (unsigned i = 0; i < 2; i++) {
		node.ask[i].render_there = 0xf;
		node.ask[i].render_open = 1U << i;
	}
	ANSWERS("0|-|4-7", "0|-|0-3");
	/* By ROCm's names, which the kernel has as numbers. */
	node_again(2, "0-7");
	node_list("GPU-0000000000abc040,GPU-0000000000abc010");
	ANSWERS("0|GPU-0000000000abc040,GPU-0000000000abc010|0-3",
		"1|GPU-0000000000abc040,GPU-0000000000abc010|4-7");
	says(node.out[0].warning, "");
	/* Without the compute driver's files, by bus id. */
	node_fresh();
	node_load(node_xml("amd"), 2, "0-7");
	node_list("1,2");
	ANSWERS("0|1,2|0-3", "1|1,2|4-7");
}
END_TEST

START_TEST(intel_tiles)
{
	node_load(node_xml("intel"), 2, "0-7");
	node_list("0.1,3.0");
	ANSWERS("0|3.0,0.1|0-3", "1|3.0,0.1|4-7");
	node_again(2, "0-7");
	node_list("1.0,1.1");
	ck_assert_uint_eq(node_make(), 0);
	ck_assert_str_eq(node.out[0].devices, "0");
	ck_assert_str_eq(node.out[1].devices, "1");
	ck_assert_uint_eq(node.ngpus, 2);
	/* Confined, the same tile's name is another GPU's. */
	node_again(2, "0-7");
	node_list("0.0");
	for (unsigned i = 0; i < 2; i++) {
		node.ask[i].render_there = 0xf;
		node.ask[i].render_open = 1U << i;
	}
	ANSWERS("0|-|4-7", "0|-|0-3");
	node_again(1, "0-7");
	node_list("9.0,.1,0.");
	ck_assert_uint_eq(node_make(), 0);
}
END_TEST

/* Case 30: unset is not "no GPU". */
START_TEST(no_list)
{
	here(4);
	for (unsigned i = 0; i < 4; i++)
		node.ask[i].step_gpus = 4;
	ANSWERS("0|-|4-5", "1|-|0-1", "2|-|6-7", "3|-|2-3");
	ck_assert_uint_eq(node.out[3].view, DDP_VIEW_NODE);
	node_again(6, "0-7");	/* two of the GPUs, confined */
	for (unsigned i = 0; i < 6; i++) {
		node.ask[i].there = 0xf;
		node.ask[i].open = 0x3;
		node.ask[i].step_gpus = 2;
	}
	ck_assert_uint_eq(node_make(), 0);
	for (unsigned i = 0; i < 6; i++) {
		ck_assert_uint_eq(node.out[i].device, i % 2);
		ck_assert(!node.out[i].set_list);
	}
	node_again(2, "0-7");	/* fewer than may be opened: which? */
	for (unsigned i = 0; i < 2; i++)
		node.ask[i].step_gpus = 2;
	ANSWERS("-|-|0-3", "-|-|4-7");
	says(node.out[0].warning, "no list of them is set");
	node_again(2, "0-7");	/* nor do all see the same */
	for (unsigned i = 0; i < 2; i++) {
		node.ask[i].there = 0xf;
		node.ask[i].open = 1U << i;
		node.ask[i].step_gpus = 1;
	}
	ANSWERS("-|-|0-3", "-|-|4-7");
	says(node.out[0].warning, "no list of them is set");
}
END_TEST

START_TEST(no_gpu)
{
	node_load(node_xml("no_gpu"), 2, "0-7");
	ANSWERS("-|-|0-3", "-|-|4-7");
	says(node.out[0].warning, "");
	ck_assert_uint_eq(node.out[0].view, DDP_VIEW_UNKNOWN);
	node_again(2, "0-7");
	node.ask[0].step_gpus = node.ask[1].step_gpus = 2;
	ANSWERS("-|-|0-3", "-|-|4-7");
	says(node.out[0].warning, "");
	/* So Slurm says that there is none. */
	here(2);
	node_list("NoDevFiles");
	ANSWERS("-|-|0-3", "-|-|4-7");
	says(node.out[0].warning, "");
}
END_TEST

/* Not all have a list, lists that are none, and more GPUs than there can be:
 * nothing is touched, and it is said once. */
START_TEST(lists_that_are_none)
{
	static const char *const bad[] = { "", "0,,1", "0,0", "$(id)",
					   "0,1,", " 0", "NoDevFiles,0" };
	char many[2][512] = { "", "" };

	for (unsigned i = 0; i < CHECK_COUNT(bad); i++) {
		here(2);
		node_list("0,1");
		list_of(1, bad[i]);
		ANSWERS("-|-|0-3", "-|-|4-7");
		says(node.out[0].warning, "none that is known");
		ck_assert_ptr_null(strchr(node.out[0].warning, '\n'));
		ck_assert_uint_eq(node.out[1].view, DDP_VIEW_UNKNOWN);
	}
	here(2);
	list_of(1, "0");
	ANSWERS("-|-|0-3", "-|-|4-7");
	says(node.out[0].warning, "none that is known");
	for (unsigned k = 0; k < 2; k++)
		for (unsigned i = 0; i < 40; i++)
			(void)snprintf(many[k] + strlen(many[k]), 12, "%sX%u",
				       i ? "," : "", 40 * k + i);
	here(2);
	list_of(0, many[0]);
	list_of(1, many[1]);
	ANSWERS("-|-|0-3", "-|-|4-7");
	says(node.out[0].warning, "none that is known");
}
END_TEST

/* Twice: the libraries' path counts when a program starts. */
static void begin(void)
{
	static const char *const xml[] = { "here 8", "amd", "intel", "no_gpu",
					   NULL };
	char path[512];
	const char *had = getenv("LD_LIBRARY_PATH");

	if (!node_begin(xml))
		exit(1);
	(void)snprintf(path, sizeof(path), "%s/libs", node_dir);
	(void)mkdir(path, 0755);
	(void)snprintf(path, sizeof(path), "%s/libs%s%s", node_dir,
		       had ? ":" : "", had ? had : "");
	setenv("LD_LIBRARY_PATH", path, 1);
	setenv("DDP_PLACE_DIR", node_dir, 1);
	(void)execl("/proc/self/exe", "check_place", NULL);
	exit(1);
}

int main(void)
{
	const TTest *const tests[] = { node_view, no_driver, gaps, uneven,
		several_gpus, own_gpus, own_gpus_overlap, gpus_option,
		too_long_together, uuids_and_prefixes, mig, amd, intel_tiles,
		no_list, no_gpu, lists_that_are_none };
	int rc;

	if (!getenv("DDP_PLACE_DIR"))
		begin();
	(void)snprintf(node_dir, sizeof(node_dir), "%s",
		       getenv("DDP_PLACE_DIR"));
	rc = check_run("place", tests, CHECK_COUNT(tests), node_fresh);
	node_end();
	return rc;
}
