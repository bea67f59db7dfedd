/* SPDX-License-Identifier: Apache-2.0 */
/* The NVML source: which GPU is which, MIG, and drivers that lack or break
 * things. */
#include "config.h"

#include "tests/unit/nvml_run.h"

#include <stddef.h>

/* NVML's order is not that of the minors. */
static void four_gpus(void)
{
	static const unsigned minors[MODEL_GPUS] = { 2, 0, 3, 1 };
	static const char *const uuids[MODEL_GPUS] = { "GPU-c", "GPU-a",
		"GPU-d", "GPU-b" };
	unsigned i;

	for (i = 0; i < MODEL_GPUS; i++) {
		model_add();
		model.gpu[i].minor = minors[i];
		model.gpu[i].uuid = uuids[i];
		model.gpu[i].load[M_SM] = 10 * (minors[i] + 1);
	}
}

/* Of GPUs at 10, 20, 30 and 40 % the step has the last two. */
START_TEST(by_minor)
{
	four_gpus();
	ask_minor(3);
	ask_minor(2);
	ck_assert(!start());
	readings(2, 1);
	near(t.in[GPU_SM], 35);
	near(t.out[GPU_SM], 40);
	near(t.gpu[0].sm, 40);
	near(t.gpu[1].sm, 30);
	stop();
}
END_TEST

START_TEST(by_uuid_and_pci)
{
	four_gpus();
	ask_uuid("GPU-a");
	ask_uuid("gpu-B");
	req.ask[2].kind = GPU_ASK_PCI;
	req.ask[2].pci.bus = 0x30;
	req.ngpus = 3;
	ck_assert(!start());
	readings(2, 1);
	near(t.gpu[0].sm, 10);
	near(t.gpu[1].sm, 20);
	near(t.gpu[2].sm, 40);
	stop();
}
END_TEST

START_TEST(some_missing)
{
	four_gpus();
	ask_minor(1);
	ask_minor(7);
	ck_assert(!start());
	readings(2, 1);
	/* Nothing is known of the step, something of one GPU. */
	ck_assert_uint_eq(t.known_in | t.known_out, 0);
	ck_assert(t.gpu[1].lost);
	near(t.gpu[0].sm, 20);
	stop();
}
END_TEST

START_TEST(all_missing)
{
	four_gpus();
	ask_minor(7);
	ask_uuid("GPU-x");
	ck_assert(start());
	ck_assert_ptr_nonnull(strstr(err.text, "minor=7"));
	stop();
}
END_TEST

/* A GPU that cannot be opened is in nobody's way. */
START_TEST(some_closed)
{
	four_gpus();
	ask_minor(1);
	model.fail[F_BY_INDEX] = NV_NO_PERMISSION;
	model.times[F_BY_INDEX] = 3;
	ck_assert(!start());
	readings(2, 1);
	near(t.in[GPU_SM], 20);
	stop();
}
END_TEST

START_TEST(no_init)
{
	four_gpus();
	ask_minor(1);
	model.fail[F_INIT] = NV_DRIVER_NOT_LOADED;
	model.times[F_INIT] = 1;
	ck_assert(start());
	ck_assert_ptr_nonnull(strstr(err.text, "Driver Not Loaded"));
	stop();
}
END_TEST

/* Two instances on one GPU; only what is the instance's own counts. */
static void mig(void)
{
	struct model_gpu *g = model_add(), *m;
	unsigned i;

	g->minor = 0;
	g->load[M_SM] = 77;
	for (i = 0; i < 2; i++) {
		m = &model.gpu[1 + i];
		m->parent = g;
		m->gi = 5 + i;
		m->uuid = i ? "MIG-two" : "MIG-one";
		m->gpm = true;
		m->load[M_SM] = 30 + 30 * i;
		m->load[M_MEMBW] = 5;
	}
}

START_TEST(mig_gpm)
{
	unsigned i;

	mig();
	ask_uuid("MIG-two");
	ask_uuid("MIG-one");
	ck_assert(!start());
	readings(3, 1);
	ck_assert_uint_eq(t.known_in, BIT(GPU_SM) | BIT(GPU_MEMBW) |
			  BIT(GPU_IDLE));
	near(t.gpu[0].sm, 60);
	near(t.gpu[1].sm, 30);
	near(t.in[GPU_SM], 45);
	near(t.in[GPU_MEMBW], 5);
	for (i = 0; i < F_FNS; i++)
		if (i == F_FIELDS || i == F_ENERGY || i == F_UTIL ||
		    i == F_PCIE || i == F_GPM_SAMPLE)
			ck_assert_uint_eq(model.calls[i], 0);
	stop();
}
END_TEST

START_TEST(mig_without_gpm)
{
	mig();
	model.gpu[1].gpm = false;
	ask_uuid("MIG-one");
	ck_assert(!start());
	readings(3, 1);
	ck_assert_uint_eq(t.known_in | t.known_out, 0);
	ck_assert(!t.gpu[0].lost);
	stop();
}
END_TEST

/* Nobody asks for what is not wanted. */
START_TEST(wants)
{
	static const struct {
		uint32_t want;
		unsigned calls[F_FNS];	/* a reading */
	} cases[] = {
		{ BIT(GPU_SM), { [F_GPM_SAMPLE] = 1, [F_GPM_METRICS] = 1 } },
		{ BIT(GPU_MEMBW), { [F_GPM_SAMPLE] = 1, [F_GPM_METRICS] = 1 } },
		{ BIT(GPU_PCIE), { [F_GPM_SAMPLE] = 1, [F_GPM_METRICS] = 1 } },
		{ BIT(GPU_IDLE), { [F_GPM_SAMPLE] = 1, [F_GPM_METRICS] = 1 } },
		{ BIT(GPU_NVLINK), { [F_FIELDS] = 1 } },
		{ BIT(GPU_ENERGY), { [F_ENERGY] = 1 } },
	};
	unsigned i, k;

	for (i = 0; i < CHECK_COUNT(cases); i++) {
		run_setup();
		four_gpus();
		ask_minor(1);
		req.want = cases[i].want;
		ck_assert(!start());
		readings(2, 1);
		memset(model.calls, 0, sizeof(model.calls));
		model_step(1);
		reading(false);
		ck_assert_uint_eq(t.known_in, cases[i].want);
		for (k = 0; k < F_FNS; k++)
			ck_assert_msg(model.calls[k] == cases[i].calls[k],
				      "case %u: function %u", i, k);
		stop();
	}
}
END_TEST

/* A library without one of the functions: what does not need it is there. */
START_TEST(symbols_missing)
{
	static const struct {
		size_t offset;
		uint32_t unknown;
	} lacks[] = {
#define LACKS(fn, unknown) { offsetof(struct nvml_api, fn), unknown }
		LACKS(error_text, 0), LACKS(driver_version, 0),
		LACKS(nvml_version, 0), LACKS(by_uuid, 0), LACKS(uuid, 0),
		LACKS(pci, 0), LACKS(is_mig, 0), LACKS(mig_parent, 0),
		LACKS(mig_instance, 0), LACKS(fields, 0), LACKS(util, 0),
		LACKS(energy, BIT(GPU_ENERGY)), LACKS(pcie, 0),
		LACKS(pcie_gen, 0), LACKS(pcie_width, 0),
		LACKS(gpm_support, BIT(GPU_SM) | BIT(GPU_MEMBW)),
		LACKS(gpm_alloc, BIT(GPU_SM) | BIT(GPU_MEMBW)),
		LACKS(gpm_free, BIT(GPU_SM) | BIT(GPU_MEMBW)),
		LACKS(gpm_sample, BIT(GPU_SM) | BIT(GPU_MEMBW)),
		LACKS(gpm_metrics, BIT(GPU_SM) | BIT(GPU_MEMBW)),
		LACKS(gpm_mig_sample, 0),
#undef LACKS
	};
	unsigned i;

	for (i = 0; i < CHECK_COUNT(lacks); i++) {
		run_setup();
		four_gpus();
		ask_minor(1);
		model_api(&n.api);
		memset((char *)&n.api + lacks[i].offset, 0, sizeof(void *));
		ck_assert(!start());
		readings(3, 1);
		ck_assert_msg(t.known_in == (ALL & ~lacks[i].unknown),
			      "case %u: known %x", i, t.known_in);
		stop();
	}
}
END_TEST

static void sane(void)
{
	unsigned m, k;

	for (m = 0; m < GPU_METRICS; m++) {
		double top = m == GPU_SM || m == GPU_MEMBW ? 100 : 1e17;

		if (t.known_in & BIT(m))
			ck_assert(t.in[m] >= 0 && t.in[m] <= top);
		if (t.known_out & BIT(m))
			ck_assert(t.out[m] >= 0 && t.out[m] <= top);
	}
	for (k = 0; k < req.ngpus; k++)
		if (t.gpu[k].known & BIT(GPU_SM))
			ck_assert(t.gpu[k].sm >= 0 && t.gpu[k].sm < 100.001);
	ck_assert_uint_eq(model.close, 0);
}

/* A driver gone mad: codes and values at random. */
START_TEST(garbled)
{
	char text[512];
	unsigned round, i;

	for (round = 1; round <= 3000; round++) {
		run_setup();
		four_gpus();
		model.gpu[3].parent = &model.gpu[0];
		for (i = 0; i < MODEL_GPUS; i++) {
			ask_minor(i);
			model.gpu[i].gpm = (round + i) % 3;
			model.gpu[i].nvlink5 = (round + i) % 2;
			model.gpu[i].load[M_PCIE_RX] = 1e9;
		}
		ask_uuid("GPU-b");
		model.garble = 88172645463325252u + round;
		if (!start())
			for (i = 0; i < 20; i++) {
				model_step(i % 7 ? 1 : 0.05);
				reading(i == 19);
				sane();
				gpu_source_text(&gpu_source_nvml, &n, &req,
						in, text, sizeof(text));
				ck_assert(!strpbrk(text, "\n\r"));
			}
		stop();
	}
}
END_TEST

/* Where GPUs differ the text says so. */
START_TEST(texts)
{
	char text[512];

	four_gpus();
	ask_minor(0);
	ask_minor(1);
	ask_minor(7);
	model.gpu[3].gpm = false;
	req.want = BIT(GPU_SM) | BIT(GPU_PCIE) | BIT(GPU_ENERGY);
	ck_assert(!start());
	readings(3, 1);
	gpu_source_text(&gpu_source_nvml, &n, &req, in, text, sizeof(text));
	ck_assert_str_eq(text, "NVML 58?0.9, driver 58?0.9; "
		"SM: GPM on 1, unknown on 2; "
		"PCIe: GPM on 1, NVML fields 197/198, rounds by samples of 20 ms on 1, unknown on 1; "
		"energy: NVML on 2, unknown on 1; lost: minor=7");
	gpu_source_text(&gpu_source_nvml, &n, &req, in, text, 40);
	ck_assert_uint_lt(strlen(text), 40);
	stop();
}
END_TEST

int main(void)
{
	const TTest *tests[] = {
		by_minor, by_uuid_and_pci, some_missing, all_missing,
		some_closed, no_init, mig_gpm, mig_without_gpm, wants,
		symbols_missing, garbled, texts,
	};

	return check_run("gpu_find", tests, CHECK_COUNT(tests), run_setup);
}
