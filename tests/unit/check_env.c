/* SPDX-License-Identifier: Apache-2.0 */
/* The environment contract: names and values, framework by framework. */
#include "config.h"

#include "core/ddp_env.h"
#include "tests/unit/check_main.h"

#include <stdio.h>
#include <string.h>

static struct ddp_plan plan;
static struct ddp_rank r;
static char out[8192];
static size_t pos;

static int collect(void *arg, const struct ddp_var *v)
{
	char find[80];

	(void)arg;
	ck_assert_ptr_nonnull(v->source);
	snprintf(find, sizeof(find), "\n%s=", v->name);
	ck_assert_msg(!strstr(out, find), "%s comes twice", v->name);
	return ddp_text_add(out, sizeof(out), &pos, "%s%s=%s\n",
			    v->flags & DDP_VAR_DEFAULT ? "?" : "", v->name,
			    v->value);
}

/* Rank 3 of 4 on two nodes (2,2) whose order is reversed. */
static void setup(void)
{
	struct ddp_err err;

	memset(&r, 0, sizeof(r));
	ck_assert(!ddp_plan_parse(&plan, "v=1;job=7;step=1;restart=0;"
		"mode=full;fw=torch,jax;given=0;addr=10.0.0.7;port=20000;"
		"verify=0;iface=none;tasks=3,1;order=1,0", &err));
	r.rank = 3;
	r.local = 2;
	r.node = 0;
	pos = 1;
	strcpy(out, "\n");
}

static void expect(const char *text)
{
	ck_assert(!ddp_env_each(&plan, &r, collect, NULL));
	ck_assert_str_eq(out + 1, text);
}

#define WORLD "RANK=3\nWORLD_SIZE=4\nLOCAL_RANK=2\nLOCAL_WORLD_SIZE=3\n" \
	"NODE_RANK=1\nMASTER_ADDR=10.0.0.7\nMASTER_PORT=20000\n"
#define TORCH "GROUP_RANK=1\nGROUP_WORLD_SIZE=2\nROLE_NAME=default\n" \
	"ROLE_RANK=3\nROLE_WORLD_SIZE=4\n"
#define TORCHRUN "?TORCH_NCCL_ASYNC_ERROR_HANDLING=1\nPET_NNODES=4\n" \
	"PET_NODE_RANK=3\n"
#define TORCHRUN2 "PET_MASTER_ADDR=10.0.0.7\nPET_MASTER_PORT=20000\n" \
	"PET_RDZV_ENDPOINT=10.0.0.7:20000\nPET_RDZV_ID=7.1\n"
#define JAX "JAX_COORDINATOR_ADDRESS=10.0.0.7:20000\n" \
	"JAX_COORDINATOR_PORT=20000\n"

START_TEST(all)
{
	expect(WORLD TORCH TORCHRUN "PET_NPROC_PER_NODE=1\n" TORCHRUN2 JAX);
}
END_TEST

START_TEST(jax_only)
{
	plan.frameworks = 1U << DDP_FW_JAX;
	expect(WORLD JAX);
}
END_TEST

START_TEST(torch_with_facts)
{
	plan.frameworks = 1U << DDP_FW_TORCH;
	r.threads = 12;
	r.gpus = 8;
	r.ifname = "ib0";
	expect(WORLD TORCH "?OMP_NUM_THREADS=12\n" TORCHRUN
	       "PET_NPROC_PER_NODE=8\n" TORCHRUN2
	       "?NCCL_SOCKET_IFNAME==ib0\n?GLOO_SOCKET_IFNAME=ib0\n");
}
END_TEST

START_TEST(ipv6)
{
	strcpy(plan.addr, "fd00::7");
	ck_assert(!ddp_env_each(&plan, &r, collect, NULL));
	ck_assert(strstr(out, "\nMASTER_ADDR=fd00::7\n"));
	ck_assert(strstr(out, "\nJAX_COORDINATOR_ADDRESS=[fd00::7]:20000\n"));
	ck_assert(strstr(out, "\nPET_RDZV_ENDPOINT=[fd00::7]:20000\n"));
}
END_TEST

static int stop(void *arg, const struct ddp_var *v)
{
	(void)v;
	return ++*(int *)arg == 3 ? 42 : 0;
}

START_TEST(stops)
{
	int calls = 0;

	ck_assert_int_eq(ddp_env_each(&plan, &r, stop, &calls), 42);
	ck_assert_int_eq(calls, 3);
}
END_TEST

START_TEST(horovod)
{
	plan.frameworks = DDP_FW_BIT(DDP_FW_HOROVOD);
	r.nodename = "n1";
	r.ifname = "ib0";
	/* Node 0 has local ranks 0,1,2, node 1 only 0: node 0 is alone. */
	expect(WORLD "HOROVOD_HOSTNAME=n1\nHOROVOD_RANK=3\nHOROVOD_SIZE=4\n"
	       "HOROVOD_LOCAL_RANK=2\nHOROVOD_LOCAL_SIZE=3\n"
	       "HOROVOD_CROSS_RANK=0\nHOROVOD_CROSS_SIZE=1\n"
	       "?NCCL_SOCKET_IFNAME==ib0\n?GLOO_SOCKET_IFNAME=ib0\n"
	       "?HOROVOD_GLOO_IFACE=ib0\n");
}
END_TEST

START_TEST(cross_ranks)
{
	plan.frameworks = DDP_FW_BIT(DDP_FW_HOROVOD);
	r.local = 0;	/* node 1 comes first in this order */
	ck_assert(!ddp_env_each(&plan, &r, collect, NULL));
	ck_assert(strstr(out, "\nHOROVOD_CROSS_RANK=1\n"));
	ck_assert(strstr(out, "\nHOROVOD_CROSS_SIZE=2\n"));
}
END_TEST

START_TEST(deepspeed)
{
	plan.frameworks = DDP_FW_BIT(DDP_FW_DEEPSPEED);
	expect(WORLD TORCH TORCHRUN "PET_NPROC_PER_NODE=1\n" TORCHRUN2
	       "LOCAL_SIZE=3\nCROSS_RANK=0\nCROSS_SIZE=1\n");
}
END_TEST

/* Frameworks on torch add nothing of their own, and nothing twice. */
START_TEST(on_torch)
{
	plan.frameworks = DDP_FW_BIT(DDP_FW_ACCELERATE) |
		DDP_FW_BIT(DDP_FW_LIGHTNING);
	expect(WORLD TORCH TORCHRUN "PET_NPROC_PER_NODE=1\n" TORCHRUN2);
	ck_assert(!strstr(out, "TORCHELASTIC"));
	ck_assert(!strstr(out, "ACCELERATE"));
}
END_TEST

START_TEST(tensorflow)
{
	struct ddp_err err;
	char *text;

	plan.frameworks = DDP_FW_BIT(DDP_FW_TF);
	ck_assert_int_eq(ddp_env_each(&plan, &r, collect, NULL), -1);
	plan.tf_addrs = strdup("10.0.0.7,fd00::8");
	plan.tf_ports = strdup("21000,22000,23000");
	plan.tf_map = strdup("1,0(x3)");
	text = ddp_env_tf(&plan, &r, &err);
	ck_assert_str_eq(text, "{\"cluster\":{\"worker\":["
		"\"[fd00::8]:21000\",\"10.0.0.7:21000\","
		"\"10.0.0.7:22000\",\"10.0.0.7:23000\"]},"
		"\"task\":{\"type\":\"worker\",\"index\":3}}");
	free(text);
	ck_assert_uint_eq(ddp_env_tf_port(&plan, 0), 21000);
	ck_assert_uint_eq(ddp_env_tf_port(&plan, 2), 23000);
	ck_assert_uint_eq(ddp_env_tf_port(&plan, 3), 0);
	pos = 1;
	strcpy(out, "\n");
	ck_assert(!ddp_env_each(&plan, &r, collect, NULL));
	ck_assert(strstr(out, "\nTF_CONFIG={"));
}
END_TEST

START_TEST(tensorflow_broken)
{
	static const char *const bad[][3] = {
		{ "10.0.0.7", "1024,1025,1026", "1,0(x3)" },
		{ "10.0.0.7,a,b", "1024,1025,1026", "1,0(x3)" },
		{ "10.0.0.7,a b", "1024,1025,1026", "1,0(x3)" },
		{ "10.0.0.7,a", "1024,1025", "1,0(x3)" },
		{ "10.0.0.7,a", "1024,80,1026", "1,0(x3)" },
		{ "10.0.0.7,a", "1024,1025,1026", "1,0(x2)" },
		{ "10.0.0.7,a", "1024,1025,1026", "0,0(x3)" },
		{ "10.0.0.7,a", "1024,1025,1026", "1,0(x3),1" },
		{ "10.0.0.7,a", "1024,1025,1026", "1,2(x3)" },
		{ "10.0.0.7,a", "1024,1025,1026", "1,0(x3" },
		{ "10.0.0.7,a", "1024,1025,1026", "" },
		{ "10.0.0.7,a", "1024,1025,1026", "1,0(x4294967295)" },
	};
	struct ddp_err err;

	for (unsigned i = 0; i < CHECK_COUNT(bad); i++) {
		plan.tf_addrs = (char *)bad[i][0];
		plan.tf_ports = (char *)bad[i][1];
		plan.tf_map = (char *)bad[i][2];
		ck_assert_msg(!ddp_env_tf(&plan, &r, &err), "%u", i);
		ck_assert(strstr(err.text, "TF_CONFIG"));
	}
}
END_TEST

/* What srun marks, the node must replace. */
static int is_sentinel(void *arg, const struct ddp_var *v)
{
	return !strcmp(v->name, arg) && !(v->flags & DDP_VAR_DEFAULT);
}

START_TEST(sentinels)
{
	plan.frameworks = 0;
	for (unsigned i = 0; ddp_env_sentinels[i]; i++)
		ck_assert_int_eq(ddp_env_each(&plan, &r, is_sentinel,
				 (void *)(uintptr_t)ddp_env_sentinels[i]), 1);
}
END_TEST

/* The life-cycle library: only where the plan has it. */
START_TEST(lifecycle)
{
	plan.frameworks = 0;
	r.preload = "/l/libddp_lifecycle.so:/u/other.so";
	r.life = "@slurm-ddp/life/7.1/x";
	expect(WORLD);
	pos = 1;
	strcpy(out, "\n");
	plan.life = true;
	r.life = NULL;
	expect(WORLD "LD_PRELOAD=/l/libddp_lifecycle.so:/u/other.so\n");
	pos = 1;
	strcpy(out, "\n");
	r.life = "@slurm-ddp/life/7.1/x";
	expect(WORLD "LD_PRELOAD=/l/libddp_lifecycle.so:/u/other.so\n"
	       "DDP_LIFECYCLE_SOCKET=@slurm-ddp/life/7.1/x\n");
}
END_TEST

int main(void)
{
	const TTest *const tests[] = { all, lifecycle, jax_only, torch_with_facts,
		ipv6, stops, horovod, cross_ranks, deepspeed, on_torch,
		tensorflow, tensorflow_broken, sentinels };

	return check_run("env", tests, CHECK_COUNT(tests), setup);
}
