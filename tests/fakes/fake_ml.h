/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A libnvidia-ml.so.1 without a GPU: a scenario file says what GPUs there are
 * and what they do over time (fake_ml_parse.c has its words), and the calls
 * answer as the driver would at that moment. All numbers and layouts of NVML
 * that it needs are declared here and in the files that use them.
 *
 *	fake_ml_find.c		which scenario, and reading it
 *	fake_ml_word.c		lines, words and numbers of it
 *	fake_ml_parse.c		what a line means
 *	fake_ml_gpuline.c	what a line "gpu" or "mig" means
 *	fake_ml_curve.c		values, integrals and counters
 *	fake_ml_call.c		what every call goes through
 *	fake_ml.c		the library, and what identifies a GPU
 *	fake_ml_mig.c		MIG
 *	fake_ml_value.c		utilisation, counters, energy
 *	fake_ml_gpm.c		GPM
 */
#ifndef FAKE_ML_H
#define FAKE_ML_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* NVML's codes, as far as they are used. */
enum {
	ML_OK = 0,
	ML_UNINITIALIZED = 1,
	ML_INVALID = 2,
	ML_NOT_SUPPORTED = 3,
	ML_NOT_FOUND = 6,
	ML_SIZE = 7,
	ML_NO_DRIVER = 9,
	ML_LOST = 15,
	ML_MEMORY = 20,
	ML_NO_DATA = 21,
	ML_VERSION = 25,
	ML_UNKNOWN = 999
};

enum {
	FAKE_GPUS = 64,
	FAKE_MIGS = 7,
	FAKE_RULES = 64,
	FAKE_UUID = 96,
	FAKE_NAME = 64
};

enum fake_curve_id {
	CURVE_SM,		/* % */
	CURVE_MEMBW,
	CURVE_UTIL,
	CURVE_NVLINK_RX,	/* bytes a second */
	CURVE_NVLINK_TX,
	CURVE_PCIE_RX,
	CURVE_PCIE_TX,
	CURVE_POWER,		/* W */
	CURVES
};

/* Where a GPU gives its traffic; bits. */
enum {
	FROM_FIELDS = 1,
	FROM_THROUGHPUT = 2,	/* PCIe only */
	FROM_GPM = 4,
	FROM_V5 = 8		/* NVLink only: the fields of NVLink 5 */
};

struct fake_point {
	double t, value;
	long double before;	/* the integral from 0 to t */
};

/* Piecewise constant; before the first point it has its value too. */
struct fake_curve {
	const struct fake_point *point;
	unsigned count;		/* 0: zero at all times */
};

struct fake_gpu;

/* What has a handle: a GPU, or a MIG device of one. */
struct fake_unit {
	struct fake_gpu *gpu;
	bool is_mig;
	bool gpm;
	unsigned gi, ci;
	char uuid[FAKE_UUID];
	struct fake_curve curve[CURVES];
};

struct fake_gpu {
	struct fake_unit unit;
	unsigned minor;
	unsigned domain, bus, device;
	char name[FAKE_NAME];
	unsigned nvlink, pcie;	/* FROM_ bits */
	bool energy, util;
	bool mig;		/* in MIG mode */
	bool wrap32;		/* the PCIe counters */
	bool hidden;		/* by a device cgroup */
	double lost;		/* from then on; INFINITY: never */
	double reset;		/* counters begin at 0 again; INFINITY: never */
	double base[CURVES];	/* of counters; CURVE_POWER: J */
	unsigned nmigs;
	struct fake_unit migs[FAKE_MIGS];
};

/* Every function that a rule can name. */
#define FAKE_FUNCTIONS(X) \
	X(nvmlInit_v2) \
	X(nvmlInitWithFlags) \
	X(nvmlShutdown) \
	X(nvmlSystemGetDriverVersion) \
	X(nvmlSystemGetNVMLVersion) \
	X(nvmlDeviceGetCount_v2) \
	X(nvmlDeviceGetHandleByIndex_v2) \
	X(nvmlDeviceGetHandleByUUID) \
	X(nvmlDeviceGetHandleByPciBusId_v2) \
	X(nvmlDeviceGetMinorNumber) \
	X(nvmlDeviceGetUUID) \
	X(nvmlDeviceGetName) \
	X(nvmlDeviceGetPciInfo_v3) \
	X(nvmlDeviceGetArchitecture) \
	X(nvmlDeviceGetCudaComputeCapability) \
	X(nvmlDeviceGetMemoryInfo) \
	X(nvmlDeviceGetMemoryInfo_v2) \
	X(nvmlDeviceGetUtilizationRates) \
	X(nvmlDeviceGetPcieThroughput) \
	X(nvmlDeviceGetFieldValues) \
	X(nvmlDeviceGetTotalEnergyConsumption) \
	X(nvmlDeviceGetComputeRunningProcesses_v3) \
	X(nvmlDeviceGetMigMode) \
	X(nvmlDeviceGetMaxMigDeviceCount) \
	X(nvmlDeviceGetMigDeviceHandleByIndex) \
	X(nvmlDeviceIsMigDeviceHandle) \
	X(nvmlDeviceGetGpuInstanceId) \
	X(nvmlDeviceGetComputeInstanceId) \
	X(nvmlDeviceGetDeviceHandleFromMigDeviceHandle) \
	X(nvmlGpmQueryDeviceSupport) \
	X(nvmlGpmSampleAlloc) \
	X(nvmlGpmSampleFree) \
	X(nvmlGpmSampleGet) \
	X(nvmlGpmMigSampleGet) \
	X(nvmlGpmMetricsGet)

enum fake_fn {
#define X(name) FN_##name,
	FAKE_FUNCTIONS(X)
#undef X
	FAKE_FNS
};

extern const char *const fake_fn_name[FAKE_FNS];

/* What happens to the calls number at … at + count - 1 of fn. */
struct fake_rule {
	enum { RULE_FAIL, RULE_HANG, RULE_SLOW } kind;
	enum fake_fn fn;
	int gpu;		/* only calls for this one; -1: all calls */
	unsigned long at, count;
	int code;		/* RULE_FAIL */
	double seconds;		/* RULE_HANG (0: for ever), RULE_SLOW */
};

struct fake_scenario {
	long double origin;
	double period;		/* 0: none */
	bool wrap32;		/* what a GPU begins with */
	char devdir[PATH_MAX], log[PATH_MAX];
	char driver[80], nvml[80];
	unsigned ngpus, nrules;
	struct fake_gpu gpu[FAKE_GPUS];	/* in the order of NVML's indices */
	struct fake_rule rule[FAKE_RULES];
	struct fake_point *points;	/* of all curves */
	size_t npoints, maxpoints;
};

extern struct fake_scenario fake_scenario;

/* The names of the curves, as in the scenario; "energy" is not one. */
extern const char *const fake_curve_name[CURVES];

/* fake_ml_find.c: reads the scenario anew. An NVML code; the cause of one is
 * on stderr. */
int fake_scenario_load(void);

/* fake_ml_word.c: a scenario's line in words. */
enum { FAKE_WORDS = 1024 };

struct fake_line {
	unsigned number;
	unsigned count;
	char *word[FAKE_WORDS];
};

/* Splits text, which it changes, at blanks outside double quotes; "#" begins
 * a comment. -1: an open quote, or too many words. */
int fake_line_split(struct fake_line *line, char *text);

/* The text after "KEY=" in the words from the third on, NULL if there is
 * none. What was asked for is emptied. */
char *fake_line_key(struct fake_line *line, unsigned from, const char *key);

/* A finite number in [min, max]; false for anything else. */
bool fake_number(const char *text, double min, double max, double *out);
bool fake_unsigned(const char *text, unsigned long max, unsigned long *out);
bool fake_yesno(const char *text, bool *out);
bool fake_copy(char *to, size_t size, const char *text);

/* fake_ml_parse.c: takes one line into the scenario; *unit is what following
 * curves belong to. Returns NULL, or what is wrong. */
const char *fake_line_parse(struct fake_scenario *s, struct fake_unit **unit,
			    struct fake_line *line);

/* fake_ml_gpuline.c: the same for a line "gpu" and for a line "mig". */
const char *fake_gpu_parse(struct fake_scenario *s, struct fake_unit **unit,
			   struct fake_line *line);
const char *fake_mig_parse(struct fake_scenario *s, struct fake_unit **unit,
			   struct fake_line *line);

/* fake_ml_curve.c: seconds since origin, now. */
long double fake_now(void);
double fake_value(const struct fake_unit *unit, enum fake_curve_id id,
		  long double t);
/* The mean over [from, to], from < to. */
double fake_mean(const struct fake_unit *unit, enum fake_curve_id id,
		 long double from, long double to);
/* The cumulative counter of the GPU at t: its integral and base, both of them
 * scaled. */
uint64_t fake_counter(const struct fake_gpu *gpu, enum fake_curve_id id,
		      long double t, double scale);
/* Points from first on belong to curve: fills their integrals. */
void fake_curve_set(struct fake_curve *curve, struct fake_point *first,
		    unsigned count);

/* fake_ml_call.c: a call of fn for gpu (NULL: for none): counts it, logs it,
 * and does what the rules say. The code that it must return, ML_OK if it is to
 * go on. */
int fake_enter(enum fake_fn fn, const struct fake_gpu *gpu);

/* The same where NVML must have been initialised. */
int fake_enter_any(enum fake_fn fn, const struct fake_gpu *gpu);

/* The same for a call with a handle, which is looked up: *unit. */
int fake_enter_unit(enum fake_fn fn, const void *handle,
		    struct fake_unit **unit);

/* The same for a call that only a whole GPU answers: ML_NOT_SUPPORTED for a
 * MIG device. */
int fake_enter_gpu(enum fake_fn fn, const void *handle, struct fake_gpu **gpu);

/* init: the first reference loads the scenario; done: drops one. */
int fake_init(enum fake_fn fn);
int fake_done(void);

/* Opens the log of a scenario that was just read; false with a word on
 * stderr. */
bool fake_log_open(void);

/* text into buffer[size] as NVML does: ML_SIZE if it does not fit. */
int fake_text(char *buffer, unsigned size, const char *text);

/* Says on stderr what is wrong. */
void fake_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* What programs see. */
#define FAKE_API __attribute__((visibility("default")))

#endif
