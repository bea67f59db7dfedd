# acct_gather_interconnect_ddp.so. Its sources are a convenience library for
# the unit tests. What Slurm's daemons bring stays unresolved.
noinst_LTLIBRARIES += libddpgpuacct.la
libddpgpuacct_la_SOURCES = accounting/acct.h \
	accounting/acct_begin.c \
	accounting/acct_check.c \
	accounting/acct_conf.c \
	accounting/acct_data.c \
	accounting/acct_end.c \
	accounting/acct_gpus.c \
	accounting/acct_plugin.c \
	accounting/acct_share.c \
	accounting/acct_spawn.c \
	accounting/acct_step.c \
	accounting/acct_tasks.c \
	accounting/acct_watch.c accounting/acct_watch.h
libddpgpuacct_la_CPPFLAGS = $(AM_CPPFLAGS) $(SLURM_CPPFLAGS) \
	-DDDP_HELPERS='"$(libexecdir)/slurm-ddp"'
libddpgpuacct_la_CFLAGS = $(AM_CFLAGS) -fvisibility=default

slurmplugin_LTLIBRARIES += acct_gather_interconnect_ddp.la
acct_gather_interconnect_ddp_la_SOURCES =
acct_gather_interconnect_ddp_la_LIBADD = libddpgpuacct.la libddpgather.la \
	libddpgpu.la libddpcore.la -lm -lpthread
acct_gather_interconnect_ddp_la_LDFLAGS = $(AM_LDFLAGS) $(MODULE_LDFLAGS) \
	-module -avoid-version -shared \
	-Wl,--version-script=$(srcdir)/accounting/acct_plugin.map
EXTRA_acct_gather_interconnect_ddp_la_DEPENDENCIES = \
	$(srcdir)/accounting/acct_plugin.map
EXTRA_DIST += accounting/acct_plugin.map

# Slurm's lists come from the real libslurm, slurmstepd's functions from the
# tests.
UNIT_TESTS_ACCT = \
	tests/unit/check_acct \
	tests/unit/check_acct_record \
	tests/unit/check_acct_tasks \
	tests/unit/check_acct_watch
tests_unit_check_acct_SOURCES = tests/unit/check_acct.c
tests_unit_check_acct_CPPFLAGS = $(check_CPPFLAGS)
tests_unit_check_acct_LDADD = libddpgpuacct.la libddpgather.la libddpgpu.la \
	$(LDADD) $(SLURM_LIBS) -lm
tests_unit_check_acct_record_SOURCES = tests/unit/check_acct_record.c
tests_unit_check_acct_record_CPPFLAGS = $(check_CPPFLAGS)
tests_unit_check_acct_record_LDADD = libddpgather.la $(LDADD) $(SLURM_LIBS)
tests_unit_check_acct_tasks_SOURCES = tests/unit/check_acct_tasks.c
tests_unit_check_acct_tasks_CPPFLAGS = $(check_CPPFLAGS)
tests_unit_check_acct_tasks_LDADD = $(tests_unit_check_acct_LDADD)
tests_unit_check_acct_watch_SOURCES = tests/unit/check_acct_watch.c
tests_unit_check_acct_watch_CPPFLAGS = $(check_CPPFLAGS)
tests_unit_check_acct_watch_LDADD = $(tests_unit_check_acct_LDADD)

# What the plugin costs: see tests/acct/check_cost.py.
check_PROGRAMS_ACCT = tests/cost/acct_cost
tests_cost_acct_cost_SOURCES = tests/cost/acct_cost.c
tests_cost_acct_cost_CPPFLAGS = $(check_CPPFLAGS)
tests_cost_acct_cost_LDADD = libddpgpuacct.la libddpgather.la libddpgpu.la \
	libddpcore.la $(SLURM_LIBS) -lm
