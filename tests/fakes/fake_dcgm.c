/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A libdcgm.so.4 with a host engine in it, for tests. FAKE_DCGM in the
 * environment says what there is, as NAME=NUMBER with blanks between:
 *
 *	gpus	how many; number N has minor 10 + N, the UUID GPU-N and the
 *		PCI address 00000000:1N:00.0
 *	sm dram		0 to 1
 *	prx ptx nrx ntx	bytes a second
 *	watt		energy is its integral since 1970
 *	step	from so many seconds after the first call on the values are
 *		half of that
 *	blank	a field that is always blank
 *	most	so many fields at once can be watched
 *	down	1: nobody answers
 *	lost	GPU 0 is lost from so many seconds on
 *	ago	the values are watched by others, and so old already
 *
 * Values are taken at whole multiples of the interval, as means since the
 * last one. FAKE_DCGM_LOG: a line is added there for each call.
 */
#include "config.h"

#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define API __attribute__((visibility("default")))

enum { OK = 0, BAD = -1, NOT_VALID = -21, LOST = -18, MULTI_PASS = -38 };

struct value {
	unsigned version, group, id;
	unsigned short field, type;
	int status;
	unsigned unused;
	int64_t ts;
	union {
		int64_t i;
		double d;
		char s[256], blob[4096];
	} v;
};

struct entity {
	unsigned group, id;
};

struct options {
	unsigned version, persist, timeout, is_unix;
};

static struct {
	int64_t begin;		/* ns since 1970 */
	int64_t every;		/* us; 0: nothing is watched */
	unsigned short field[128];
	int nfields, nwatched;
	unsigned char member[32];
} fake;

API int dcgmInit(void);
API int dcgmShutdown(void);
API int dcgmConnect_v2(const char *to, struct options *o, uintptr_t *handle);
API int dcgmDisconnect(uintptr_t handle);
API const char *errorString(int rc);
API int dcgmGetAllDevices(uintptr_t handle, unsigned *ids, int *n);
API int dcgmGroupCreate(uintptr_t handle, int type, const char *name,
			uintptr_t *group);
API int dcgmGroupAddEntity(uintptr_t handle, uintptr_t group, int kind,
			   unsigned id);
API int dcgmFieldGroupCreate(uintptr_t handle, int n,
			     const unsigned short *ids, const char *name,
			     uintptr_t *fields);
API int dcgmFieldGroupDestroy(uintptr_t handle, uintptr_t fields);
API int dcgmWatchFields(uintptr_t handle, uintptr_t group, uintptr_t fields,
			long long every, double keep_s, int keep);
API int dcgmEntitiesGetLatestValues(uintptr_t handle, struct entity *e,
				    unsigned n, unsigned short *fields,
				    unsigned nfields, unsigned flags,
				    struct value *v);

/* A number of FAKE_DCGM; 0 if it is not there. */
static double conf(const char *name)
{
	const char *all = getenv("FAKE_DCGM"), *at = all;
	size_t len = strlen(name);

	while (at && (at = strstr(at, name))) {
		if (at[len] == '=' && (at == all || at[-1] == ' '))
			return strtod(at + len + 1, NULL);
		at += len;
	}
	return 0;
}

static void note(const char *call)
{
	const char *path = getenv("FAKE_DCGM_LOG");
	FILE *f = path ? fopen(path, "ae") : NULL;

	if (!f)
		return;
	fprintf(f, "%s\n", call);
	fclose(f);
}

static int64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

int dcgmInit(void)
{
	note("dcgmInit");
	fake.begin = now();
	return OK;
}

int dcgmShutdown(void)
{
	note("dcgmShutdown");
	return OK;
}

int dcgmConnect_v2(const char *to, struct options *o, uintptr_t *handle)
{
	note("dcgmConnect_v2");
	if (strcmp(to, "127.0.0.1") || o->version != (sizeof(*o) | 2u << 24) ||
	    o->persist || o->is_unix || !o->timeout)
		return BAD;
	*handle = 7;
	return conf("down") > 0 ? NOT_VALID : OK;
}

int dcgmDisconnect(uintptr_t handle)
{
	note("dcgmDisconnect");
	return handle == 7 ? OK : BAD;
}

const char *errorString(int rc)
{
	return rc == NOT_VALID ? "The connection to the host engine is not valid" :
	       rc == MULTI_PASS ? "The metrics need several passes" : NULL;
}

int dcgmGetAllDevices(uintptr_t handle, unsigned *ids, int *n)
{
	int i;

	note("dcgmGetAllDevices");
	*n = (int)conf("gpus");
	/* Its ids are in no order of ours. */
	for (i = 0; i < *n; i++)
		ids[i] = (unsigned)(*n - 1 - i);
	return handle == 7 ? OK : BAD;
}

int dcgmGroupCreate(uintptr_t handle, int type, const char *name,
		    uintptr_t *group)
{
	note("dcgmGroupCreate");
	*group = 11;
	return handle == 7 && type == 1 && *name ? OK : BAD;
}

int dcgmGroupAddEntity(uintptr_t handle, uintptr_t group, int kind, unsigned id)
{
	note("dcgmGroupAddEntity");
	if (handle != 7 || group != 11 || kind != 1 || id >= conf("gpus"))
		return BAD;
	fake.member[id] = 1;
	return OK;
}

int dcgmFieldGroupCreate(uintptr_t handle, int n, const unsigned short *ids,
			 const char *name, uintptr_t *fields)
{
	note("dcgmFieldGroupCreate");
	if (handle != 7 || n < 1 || n > 128 || !*name || fake.nfields)
		return BAD;
	memcpy(fake.field, ids, (size_t)n * sizeof(*ids));
	fake.nfields = n;
	*fields = 13;
	return OK;
}

int dcgmFieldGroupDestroy(uintptr_t handle, uintptr_t fields)
{
	note("dcgmFieldGroupDestroy");
	fake.nfields = 0;
	return handle == 7 && fields == 13 ? OK : BAD;
}

int dcgmWatchFields(uintptr_t handle, uintptr_t group, uintptr_t fields,
		    long long every, double keep_s, int keep)
{
	note("dcgmWatchFields");
	if (handle != 7 || group != 11 || fields != 13 || every < 100000 ||
	    keep_s <= 0 || keep < 0)
		return BAD;
	if (conf("most") > 0 && fake.nfields > conf("most"))
		return MULTI_PASS;
	fake.every = every;
	fake.nwatched = fake.nfields;
	return OK;
}

/* The integral of rate from begin to t (both seconds since 1970). */
static double integral(double rate, double t)
{
	double begin = (double)fake.begin * 1e-9, step = conf("step");

	if (step <= 0 || t < begin + step)
		return rate * (t - begin);
	return rate * step + rate / 2 * (t - begin - step);
}

static void identity(struct value *v, unsigned id)
{
	switch (v->field) {
	case 54:
		v->type = 's';
		snprintf(v->v.s, sizeof(v->v.s), "GPU-%u", id);
		break;
	case 55:
		v->type = 'i';
		v->v.i = 10 + id;
		break;
	case 57:
		v->type = 's';
		snprintf(v->v.s, sizeof(v->v.s), "00000000:1%u:00.0", id);
		break;
	default:
		v->status = BAD;
	}
}

static const char *curve(unsigned short field)
{
	switch (field) {
	case 1002:
		return "sm";
	case 1005:
		return "dram";
	case 1009:
		return "ptx";
	case 1010:
		return "prx";
	case 1011:
		return "ntx";
	case 1012:
		return "nrx";
	default:
		return "watt";
	}
}

static void measured(struct value *v)
{
	int64_t at = now() / 1000 / fake.every * fake.every;
	double t, before, rate = conf(curve(v->field));

	/* Nothing yet; or what others have had measured. */
	if (at * 1000 < fake.begin && conf("ago") <= 0) {
		v->status = -14;
		return;
	}
	v->ts = at;
	t = (double)at * 1e-6;
	before = t - (double)fake.every * 1e-6;
	if (v->field == 156) {
		v->type = 'i';
		v->v.i = 1000000 + (int64_t)(integral(rate, t) * 1000);
		return;
	}
	rate = (integral(rate, t) - integral(rate, before)) / (t - before);
	v->type = v->field < 1009 ? 'd' : 'i';
	if (v->type == 'd')
		v->v.d = v->field == conf("blank") ? 140737488355330.0 : rate;
	else
		v->v.i = v->field == conf("blank") ? 0x7ffffffffffffff2LL :
			 llround(rate);
}

int dcgmEntitiesGetLatestValues(uintptr_t handle, struct entity *e, unsigned n,
				unsigned short *fields, unsigned nfields,
				unsigned flags, struct value *v)
{
	unsigned i, k;

	note("dcgmEntitiesGetLatestValues");
	if (handle != 7 || n != 1 || e->group != 1 || e->id >= conf("gpus"))
		return BAD;
	for (i = 0; i < nfields; i++) {
		/* In no promised order. */
		k = nfields - 1 - i;
		memset(&v[k], 0, sizeof(v[k]));
		v[k].version = (unsigned)sizeof(*v) | 2u << 24;
		v[k].group = e->group;
		v[k].id = e->id;
		v[k].field = fields[flags ? k : i];
		if (flags == 1)
			identity(&v[k], e->id);
		else if (!fake.member[e->id] || !fake.every)
			v[k].status = -16;
		else if (e->id == 0 && conf("lost") > 0 &&
			 (double)(now() - fake.begin) * 1e-9 > conf("lost"))
			v[k].status = LOST;
		else
			measured(&v[k]);
	}
	return OK;
}
