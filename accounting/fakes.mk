# A libnvidia-ml.so.1 for tests and for contrib/devcluster: what its GPUs do
# is in a scenario file beside it. In folders of their own one of an old
# driver, without GPM, and one without nvmlDeviceGetFieldValues. Not installed.
# Never built with sanitizers, so that any program can load it.
fake_ml = \
	tests/fakes/libnvidia-ml/libnvidia-ml.so.1 \
	tests/fakes/libnvidia-ml-old/libnvidia-ml.so.1 \
	tests/fakes/libnvidia-ml-nofields/libnvidia-ml.so.1
fake_ml_sources = \
	tests/fakes/fake_ml.c \
	tests/fakes/fake_ml_call.c \
	tests/fakes/fake_ml_curve.c \
	tests/fakes/fake_ml_find.c \
	tests/fakes/fake_ml_gpm.c \
	tests/fakes/fake_ml_gpuline.c \
	tests/fakes/fake_ml_mig.c \
	tests/fakes/fake_ml_parse.c \
	tests/fakes/fake_ml_value.c \
	tests/fakes/fake_ml_word.c
noinst_DATA = $(fake_ml)
CLEANFILES += $(fake_ml)
EXTRA_DIST += $(fake_ml_sources) tests/fakes/fake_ml.h tests/acct

tests/fakes/libnvidia-ml-old/libnvidia-ml.so.1: fake_ml_flags = -DFAKE_ML_NO_GPM
tests/fakes/libnvidia-ml-nofields/libnvidia-ml.so.1: \
	fake_ml_flags = -DFAKE_ML_NO_FIELDS

$(fake_ml): $(fake_ml_sources) tests/fakes/fake_ml.h config.h
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_CCLD)$(CC) $(DEFS) $(DEFAULT_INCLUDES) $(AM_CPPFLAGS) \
		$(CPPFLAGS) $(fake_ml_flags) \
		$(filter-out -fsanitize% -fno-sanitize%,$(AM_CFLAGS) $(CFLAGS)) \
		-fPIC -shared -Wl,-soname,libnvidia-ml.so.1 -Wl,-z,defs \
		$(filter-out -fsanitize%,$(AM_LDFLAGS) $(LDFLAGS)) \
		$(filter %.c,$^) -o $@ -lm

ACCT_TESTS += tests/acct/test_fake_ml.py tests/acct/test_expected.py
