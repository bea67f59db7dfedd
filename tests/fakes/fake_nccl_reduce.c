/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arithmetic on vectors of NCCL's types. Floating point goes through double
 * and is rounded to the type after each step; integers wrap.
 */
#include "config.h"

#include "tests/fakes/fake_nccl_in.h"

#include <math.h>
#include <string.h>

size_t fake_type_size(ncclDataType_t type)
{
	static const unsigned char sizes[] = {
		[ncclInt8] = 1, [ncclUint8] = 1, [ncclInt32] = 4,
		[ncclUint32] = 4, [ncclInt64] = 8, [ncclUint64] = 8,
		[ncclFloat16] = 2, [ncclFloat32] = 4, [ncclFloat64] = 8,
		[ncclBfloat16] = 2, [ncclFloat8e4m3] = 1, [ncclFloat8e5m2] = 1
	};

	return (unsigned)type < sizeof(sizes) ? sizes[type] : 0;
}

static double half_get(uint16_t bits)
{
	int exponent = bits >> 10 & 31;
	double value = bits & 1023;

	if (exponent == 31)
		value = value ? (double)NAN : (double)INFINITY;
	else if (exponent)
		value = ldexp(value + 1024, exponent - 25);
	else
		value = ldexp(value, -24);
	return bits & 0x8000 ? -value : value;
}

/* To the nearest, ties to even, as rint() rounds. */
static uint16_t half_put(double value)
{
	uint16_t sign = signbit(value) ? 0x8000 : 0;
	double size = fabs(value);
	int exponent;

	if (isnan(value))
		return sign | 0x7e00;
	if (size >= 65520)
		return sign | 0x7c00;
	if (size < ldexp(1, -14))
		return sign | (uint16_t)rint(ldexp(size, 24));
	frexp(size, &exponent);
	/* A carry out of the fraction goes into the exponent, rightly. */
	return sign | (uint16_t)(((exponent + 14) << 10) +
				 (int)rint(ldexp(size, 11 - exponent)) - 1024);
}

static double bfloat_get(uint16_t bits)
{
	uint32_t wide = (uint32_t)bits << 16;
	float value;

	memcpy(&value, &wide, sizeof(value));
	return (double)value;
}

static uint16_t bfloat_put(double value)
{
	float narrow = (float)value;
	uint32_t bits;

	memcpy(&bits, &narrow, sizeof(bits));
	if (isnan(value))
		return (uint16_t)(bits >> 16 | 0x40);
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static double get(const void *at, size_t i, ncclDataType_t type)
{
	switch (type) {
	case ncclFloat16:
		return half_get(((const uint16_t *)at)[i]);
	case ncclBfloat16:
		return bfloat_get(((const uint16_t *)at)[i]);
	case ncclFloat32:
		return (double)((const float *)at)[i];
	default:
		return ((const double *)at)[i];
	}
}

static void put(void *at, size_t i, ncclDataType_t type, double value)
{
	switch (type) {
	case ncclFloat16:
		((uint16_t *)at)[i] = half_put(value);
		break;
	case ncclBfloat16:
		((uint16_t *)at)[i] = bfloat_put(value);
		break;
	case ncclFloat32:
		((float *)at)[i] = (float)value;
		break;
	default:
		((double *)at)[i] = value;
	}
}

/* An integer, its sign extended. */
static uint64_t iget(const void *at, size_t i, ncclDataType_t type)
{
	switch (type) {
	case ncclInt8:
		return (uint64_t)(int64_t)((const int8_t *)at)[i];
	case ncclUint8:
		return ((const uint8_t *)at)[i];
	case ncclInt32:
		return (uint64_t)(int64_t)((const int32_t *)at)[i];
	case ncclUint32:
		return ((const uint32_t *)at)[i];
	default:
		return ((const uint64_t *)at)[i];
	}
}

static void iput(void *at, size_t i, ncclDataType_t type, uint64_t value)
{
	switch (fake_type_size(type)) {
	case 1:
		((uint8_t *)at)[i] = (uint8_t)value;
		break;
	case 4:
		((uint32_t *)at)[i] = (uint32_t)value;
		break;
	default:
		((uint64_t *)at)[i] = value;
	}
}

static bool is_signed(ncclDataType_t type)
{
	return type == ncclInt8 || type == ncclInt32 || type == ncclInt64;
}

static bool is_integer(ncclDataType_t type)
{
	return type <= ncclUint64;
}

static uint64_t icombine(uint64_t a, uint64_t b, bool sign, ncclRedOp_t op)
{
	bool less = sign ? (int64_t)a < (int64_t)b : a < b;

	switch (op) {
	case ncclProd:
		return a * b;
	case ncclMax:
		return less ? b : a;
	case ncclMin:
		return less ? a : b;
	default:
		return a + b;
	}
}

static double combine(double a, double b, ncclRedOp_t op)
{
	switch (op) {
	case ncclProd:
		return a * b;
	case ncclMax:
		return fmax(a, b);
	case ncclMin:
		return fmin(a, b);
	default:
		return a + b;
	}
}

void fake_reduce(void *to, const void *from, size_t count, ncclDataType_t type,
		 ncclRedOp_t op)
{
	size_t i;

	for (i = 0; i < count; i++) {
		if (is_integer(type))
			iput(to, i, type,
			     icombine(iget(to, i, type), iget(from, i, type),
				      is_signed(type), op));
		else
			put(to, i, type,
			    combine(get(to, i, type), get(from, i, type), op));
	}
}

void fake_reduce_after(void *data, size_t count, ncclDataType_t type,
		       ncclRedOp_t op, int nranks)
{
	uint64_t value, n = (uint64_t)nranks;
	size_t i;

	for (i = 0; op == ncclAvg && i < count; i++) {
		if (!is_integer(type)) {
			put(data, i, type, get(data, i, type) / nranks);
			continue;
		}
		value = iget(data, i, type);
		value = is_signed(type) ? (uint64_t)((int64_t)value / nranks) :
			value / n;
		iput(data, i, type, value);
	}
}

/*
 * Operators made by PreMulSum: their place is op - ncclNumOps. As real ones
 * they belong to a communicator, which the fake does not look at.
 */
#define MAX_OPS 64
static pthread_mutex_t ops_lock = PTHREAD_MUTEX_INITIALIZER;
static struct premul {
	bool used;
	ncclDataType_t type;
	const void *device;	/* read when the operation runs; or NULL */
	unsigned char value[8];
} ops[MAX_OPS];

bool fake_op_valid(ncclRedOp_t op, ncclDataType_t type)
{
	bool valid = (unsigned)op < ncclNumOps;

	/* Of 8-bit floating point only copies are made here. */
	if (type == ncclFloat8e4m3 || type == ncclFloat8e5m2)
		return false;
	if (valid || (unsigned)op >= ncclNumOps + MAX_OPS)
		return valid;
	pthread_mutex_lock(&ops_lock);
	valid = ops[op - ncclNumOps].used && ops[op - ncclNumOps].type == type;
	pthread_mutex_unlock(&ops_lock);
	return valid;
}

void fake_reduce_before(void *data, size_t count, ncclDataType_t type,
			ncclRedOp_t op)
{
	unsigned char scalar[8];
	struct premul *mul;
	size_t i;

	if ((unsigned)op < ncclNumOps || (unsigned)op >= ncclNumOps + MAX_OPS)
		return;
	pthread_mutex_lock(&ops_lock);
	mul = &ops[op - ncclNumOps];
	memcpy(scalar, mul->device ? mul->device : mul->value,
	       fake_type_size(type));
	pthread_mutex_unlock(&ops_lock);
	for (i = 0; i < count; i++) {
		if (is_integer(type))
			iput(data, i, type, iget(data, i, type) *
			     iget(scalar, 0, type));
		else
			put(data, i, type, get(data, i, type) *
			    get(scalar, 0, type));
	}
}

FAKE_NCCL(RedOpCreatePreMulSum, (ncclRedOp_t *op, void *scalar,
				 ncclDataType_t type,
				 ncclScalarResidence_t where, ncclComm_t comm))
{
	size_t size = fake_type_size(type);
	struct ncclComm *held;
	ncclResult_t result;
	unsigned i;

	result = fake_comm_enter("ncclRedOpCreatePreMulSum", comm, true, &held);
	if (result != ncclSuccess)
		return result;
	result = ncclInvalidArgument;
	pthread_mutex_lock(&ops_lock);
	for (i = 0; op && scalar && size && i < MAX_OPS; i++) {
		if (ops[i].used)
			continue;
		ops[i].used = true;
		ops[i].type = type;
		ops[i].device = where == ncclScalarDevice ? scalar : NULL;
		if (where != ncclScalarDevice)
			memcpy(ops[i].value, scalar, size);
		*op = (ncclRedOp_t)(ncclNumOps + i);
		result = ncclSuccess;
		break;
	}
	pthread_mutex_unlock(&ops_lock);
	return fake_comm_leave("ncclRedOpCreatePreMulSum", held, result);
}

FAKE_NCCL(RedOpDestroy, (ncclRedOp_t op, ncclComm_t comm))
{
	struct ncclComm *held;
	ncclResult_t result;

	result = fake_comm_enter("ncclRedOpDestroy", comm, true, &held);
	if (result != ncclSuccess)
		return result;
	result = ncclInvalidArgument;
	pthread_mutex_lock(&ops_lock);
	if ((unsigned)op >= ncclNumOps && (unsigned)op < ncclNumOps + MAX_OPS &&
	    ops[op - ncclNumOps].used) {
		ops[op - ncclNumOps].used = false;
		result = ncclSuccess;
	}
	pthread_mutex_unlock(&ops_lock);
	return fake_comm_leave("ncclRedOpDestroy", held, result);
}
