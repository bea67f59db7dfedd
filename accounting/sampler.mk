# What sampler and plugin share.
noinst_LTLIBRARIES += libddpgpu.la
libddpgpu_la_SOURCES = accounting/gpu_path.c accounting/gpu_path.h \
	accounting/gpu_shm.c accounting/gpu_shm.h

# ddp-gpu-sampler: run by the plugin, one a node and step. The driver's
# library is loaded at run time; nothing of it is needed to build.
sampler_sources = \
	accounting/dcgm_abi.h \
	accounting/dcgm_find.c \
	accounting/dcgm_port.c \
	accounting/gpu_integ.c accounting/gpu_integ.h \
	accounting/gpu_library.c accounting/gpu_library.h \
	accounting/gpu_source.c accounting/gpu_source.h \
	accounting/nvml_abi.h \
	accounting/nvml_api.c accounting/nvml_api.h \
	accounting/sampler.h \
	accounting/sampler_args.c \
	accounting/sampler_priv.c \
	accounting/src_dcgm.c accounting/src_dcgm.h \
	accounting/src_field.c \
	accounting/src_gpm.c \
	accounting/src_match.c \
	accounting/src_nvml.c accounting/src_nvml.h \
	accounting/src_nvml_ops.c
noinst_LTLIBRARIES += libddpsampler.la
libddpsampler_la_SOURCES = $(sampler_sources)

ddphelperexec_PROGRAMS += ddp-gpu-sampler
ddp_gpu_sampler_SOURCES = accounting/sampler_main.c
ddp_gpu_sampler_LDADD = $(sampler_LDADD)

UNIT_TESTS_SAMPLER = \
	tests/unit/check_gpu_args \
	tests/unit/check_gpu_find \
	tests/unit/check_gpu_integ \
	tests/unit/check_gpu_nvml \
	tests/unit/check_gpu_shm \
	tests/unit/check_nvml_abi
sampler_LDADD = libddpsampler.la libddpgpu.la libddpcore.la -lm -ldl
tests_unit_check_gpu_integ_SOURCES = tests/unit/check_gpu_integ.c
tests_unit_check_gpu_integ_LDADD = $(sampler_LDADD) $(CHECK_LIBS)
tests_unit_check_gpu_args_SOURCES = tests/unit/check_gpu_args.c
tests_unit_check_gpu_args_LDADD = $(sampler_LDADD) $(CHECK_LIBS)
nvml_model = tests/unit/nvml_model.c tests/unit/nvml_model.h \
	tests/unit/nvml_run.h
tests_unit_check_gpu_find_SOURCES = tests/unit/check_gpu_find.c $(nvml_model)
tests_unit_check_gpu_find_LDADD = $(sampler_LDADD) $(CHECK_LIBS)
tests_unit_check_gpu_nvml_SOURCES = tests/unit/check_gpu_nvml.c $(nvml_model)
tests_unit_check_gpu_nvml_LDADD = $(sampler_LDADD) $(CHECK_LIBS)
tests_unit_check_gpu_shm_SOURCES = tests/unit/check_gpu_shm.c
tests_unit_check_gpu_shm_LDADD = $(sampler_LDADD) $(CHECK_LIBS)
tests_unit_check_nvml_abi_SOURCES = tests/unit/check_nvml_abi.c
tests_unit_check_nvml_abi_CPPFLAGS = $(AM_CPPFLAGS) $(NVML_CPPFLAGS)
tests_unit_check_nvml_abi_LDADD =

# A libdcgm.so.4 for tests; as the other fakes never with sanitizers.
fake_dcgm = tests/fakes/libdcgm/libdcgm.so.4
check_DATA += $(fake_dcgm)
CLEANFILES += $(fake_dcgm)
EXTRA_DIST += tests/fakes/fake_dcgm.c
$(fake_dcgm): tests/fakes/fake_dcgm.c config.h
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_CCLD)$(CC) $(DEFS) $(DEFAULT_INCLUDES) $(AM_CPPFLAGS) \
		$(CPPFLAGS) \
		$(filter-out -fsanitize% -fno-sanitize%,$(AM_CFLAGS) $(CFLAGS)) \
		-fPIC -shared -Wl,-soname,libdcgm.so.4 -Wl,-z,defs \
		$(filter-out -fsanitize%,$(AM_LDFLAGS) $(LDFLAGS)) \
		$(filter %.c,$^) -o $@ -lm

ACCT_TESTS += tests/acct/test_sampler.py tests/acct/test_sampler_dcgm.py

tests_cost_gpu_cost_SOURCES = tests/cost/gpu_cost.c
tests_cost_gpu_cost_LDADD = $(sampler_LDADD)
ACCT_TESTS += tests/acct/check_sampler_cost
