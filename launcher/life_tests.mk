# Tests of libddp_lifecycle.so: two libraries of one rank play NCCL and MPI, a
# program does what its arguments say. The libraries are never built with
# sanitizers, so that any program can load them.
lifecycle_libs = tests/life/libs/libnccl.so.2 tests/life/libs/libmpi.so.40 \
	tests/life/libs/libmpi.so.12 tests/life/libs/libmpi_abi.so.1 \
	tests/life/libs/libcuda.so.1 tests/life/libs/libinside.so \
	tests/life/libs/prog_late.so
check_DATA += $(lifecycle_libs)
CLEANFILES += $(lifecycle_libs)
EXTRA_DIST += tests/life/life_harness.py tests/life/mini.h tests/life/mini_mpi.c tests/life/mini_nccl.c \
	tests/life/mini_inside.c tests/life/life_abi.c
lifecycle_link = $(CC) $(DEFS) $(DEFAULT_INCLUDES) $(AM_CPPFLAGS) $(CPPFLAGS) \
	$(filter-out -fsanitize% -fno-sanitize%,$(AM_CFLAGS) $(CFLAGS)) \
	-fPIC -shared -Wl,-soname,$(@F) \
	$(filter-out -fsanitize%,$(AM_LDFLAGS) $(LDFLAGS))

tests/life/libs/libnccl.so.2: tests/life/mini_nccl.c tests/life/mini.h
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_CCLD)$(lifecycle_link) $(srcdir)/tests/life/mini_nccl.c -o $@
tests/life/libs/libmpi.so.40: tests/life/mini_mpi.c tests/life/mini.h
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_CCLD)$(lifecycle_link) $(srcdir)/tests/life/mini_mpi.c -o $@
# One like MPICH's; and the same by the name of MPI 5.0's interface, which as
# Open MPI's stands on a library with other handles.
tests/life/libs/libmpi.so.12: tests/life/mini_mpi.c tests/life/mini.h
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_CCLD)$(lifecycle_link) -DMINI_CONSTANTS \
		$(srcdir)/tests/life/mini_mpi.c -o $@
tests/life/libs/libmpi_abi.so.1: tests/life/mini_mpi.c tests/life/mini.h \
	tests/life/libs/libmpi.so.40
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_CCLD)$(lifecycle_link) -DMINI_CONSTANTS \
		$(srcdir)/tests/life/mini_mpi.c -Wl,--no-as-needed \
		tests/life/libs/libmpi.so.40 -Wl,-rpath,'$$ORIGIN' -o $@
# Where NCCL is part of another library: CUDA's is loaded, and a name is there.
tests/life/libs/libcuda.so.1: tests/life/mini_inside.c
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_CCLD)$(lifecycle_link) $(srcdir)/tests/life/mini_inside.c -o $@
tests/life/libs/libinside.so: tests/life/mini_inside.c
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_CCLD)$(lifecycle_link) -DINSIDE $(srcdir)/tests/life/mini_inside.c -o $@
tests/life/libs/prog_late.so: tests/life/prog.c \
	tests/life/libs/libnccl.so.2 tests/life/libs/libmpi.so.40
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_CCLD)$(lifecycle_link) -DPROG_LATE $(srcdir)/tests/life/prog.c \
		tests/life/libs/libnccl.so.2 tests/life/libs/libmpi.so.40 \
		-Wl,-rpath,'$$ORIGIN' -o $@

check_PROGRAMS += tests/life/prog tests/life/late
tests_life_prog_SOURCES = tests/life/prog.c
tests_life_prog_LDADD = tests/life/libs/libnccl.so.2 \
	tests/life/libs/libmpi.so.40 -lpthread
tests_life_prog_LDFLAGS = $(AM_LDFLAGS) -Wl,--no-as-needed \
	-Wl,-rpath,$(abs_top_builddir)/tests/life/libs
check_PROGRAMS += tests/life/prog_mpich
tests_life_prog_mpich_SOURCES = tests/life/prog.c
tests_life_prog_mpich_CPPFLAGS = $(AM_CPPFLAGS) -DPROG_CONSTANTS
tests_life_prog_mpich_LDADD = tests/life/libs/libnccl.so.2 \
	tests/life/libs/libmpi.so.12 -lpthread
tests_life_prog_mpich_LDFLAGS = $(tests_life_prog_LDFLAGS)
tests_life_late_SOURCES = tests/life/late.c
tests_life_late_LDADD = -ldl
check_PROGRAMS += tests/life/mpi_only
tests_life_mpi_only_SOURCES = tests/life/mpi_only.c
tests_life_mpi_only_LDADD = tests/life/libs/libmpi.so.40
tests_life_mpi_only_LDFLAGS = $(tests_life_prog_LDFLAGS)
# The same program linked with the library, as a new one is; and linked behind
# MPI and NCCL, where libtool puts a library that it knows.
check_PROGRAMS += tests/life/prog_api tests/life/prog_behind
tests_life_prog_api_SOURCES = tests/life/prog.c
tests_life_prog_api_LDADD = .libs/libddp_lifecycle.so $(tests_life_prog_LDADD)
tests_life_prog_api_LDFLAGS = $(tests_life_prog_LDFLAGS) \
	-Wl,-rpath,$(abs_top_builddir)/.libs
.libs/libddp_lifecycle.so: libddp_lifecycle.la
tests_life_prog_behind_SOURCES = tests/life/prog.c
tests_life_prog_behind_LDADD = $(tests_life_prog_LDADD) libddp_lifecycle.la
tests_life_prog_behind_LDFLAGS = $(tests_life_prog_LDFLAGS)
if HAVE_STATIC
check_PROGRAMS += tests/life/still
tests_life_still_SOURCES = tests/life/still.c
tests_life_still_LDADD =
tests_life_still_LDFLAGS = $(AM_LDFLAGS) -all-static
endif

UNIT_TESTS_LIFECYCLE = tests/unit/check_life
tests_unit_check_life_SOURCES = tests/unit/check_life.c $(lifecycle_sources)
tests_unit_check_life_LDADD = $(LDADD) -ldl -lpthread

LIFECYCLE_TESTS = tests/life/check_life_cost tests/life/test_examples.py \
	tests/life/test_life.py tests/life/test_life_abort.py \
	tests/life/test_life_step.py tests/life/test_real_nccl.py \
	tests/life/test_torch.py
