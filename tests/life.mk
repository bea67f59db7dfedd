# What the tests of the life-cycle library need: a libnccl.so.2 without GPUs,
# programs that use it, alone, with MPI and beside MPI, and their tests.
# Not installed. The library is never built with sanitizers, so that any
# program can load it; tests/life/check_nccl_tsan builds its own.
fake_nccl = tests/fakes/libnccl/libnccl.so.2
fake_nccl_sources = \
	tests/fakes/fake_cuda.c \
	tests/fakes/fake_nccl_boot.c \
	tests/fakes/fake_nccl_end.c \
	tests/fakes/fake_nccl_group.c \
	tests/fakes/fake_nccl_init.c \
	tests/fakes/fake_nccl_inject.c \
	tests/fakes/fake_nccl_launch.c \
	tests/fakes/fake_nccl_log.c \
	tests/fakes/fake_nccl_msg.c \
	tests/fakes/fake_nccl_net.c \
	tests/fakes/fake_nccl_op.c \
	tests/fakes/fake_nccl_query.c \
	tests/fakes/fake_nccl_reduce.c \
	tests/fakes/fake_nccl_split.c \
	tests/fakes/fake_nccl_table.c
fake_nccl_headers = \
	tests/fakes/fake_cuda.h \
	tests/fakes/fake_nccl.h \
	tests/fakes/fake_nccl_in.h

# Where there is no mpicc the programs with MPI are not built; their tests say
# so. Its compiler is CC, by Open MPI's and by MPICH's name for that.
life_mpi_programs = $(if $(MPICC),tests/life/life_mpi tests/life/life_mpi_nccl)
# The same once more with MPICH, where it is beside another MPI.
life_mpich_programs = $(if $(MPICC_MPICH),tests/life/mpich/life_mpi \
	tests/life/mpich/life_mpi_nccl)
life_nccl_programs = tests/life/life_nccl
life_programs = $(life_nccl_programs) $(life_mpi_programs) \
	$(life_mpich_programs) tests/life/nccl_user
life_sources = tests/life/life_run.c tests/life/life_prog.c
noinst_DATA += $(fake_nccl) $(life_programs)
CLEANFILES += $(fake_nccl) tests/life/nccl_user tests/life/life_mpi \
	tests/life/life_mpi_nccl tests/life/life_nccl \
	tests/life/mpich/life_mpi tests/life/mpich/life_mpi_nccl
# By name: the folder also holds what is built.
EXTRA_DIST += $(fake_nccl_sources) $(fake_nccl_headers) $(life_sources) \
	tests/life/README.md tests/life/cells.py tests/life/launchers.py \
	tests/life/life_prog.h tests/life/matrix.py tests/life/nccl_abi.c \
	tests/life/nccl_user.c tests/life/ranks.py tests/life/torch_rank.py \
	tests/life/watch.py

life_compile = $(DEFS) $(DEFAULT_INCLUDES) $(AM_CPPFLAGS) $(CPPFLAGS) \
	$(filter-out -fsanitize% -fno-sanitize%,$(AM_CFLAGS) $(CFLAGS)) \
	$(filter-out -fsanitize%,$(AM_LDFLAGS) $(LDFLAGS)) -pthread
# Found at run time where it was built: the tests run there.
life_link = $(fake_nccl) -Wl,-rpath,$(abs_top_builddir)/tests/fakes/libnccl

$(fake_nccl): $(fake_nccl_sources) $(fake_nccl_headers) config.h
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_CCLD)$(CC) $(life_compile) -fPIC -shared \
		-Wl,-soname,libnccl.so.2 -Wl,-z,defs -Wl,-z,nodelete \
		$(filter %.c,$^) -o $@ -lm

tests/life/nccl_user: tests/life/nccl_user.c
tests/life/life_nccl $(life_mpi_programs) $(life_mpich_programs): \
	$(life_sources) tests/life/life_prog.h
tests/life/life_nccl: life_flags = -DWITH_NCCL
tests/life/life_mpi tests/life/mpich/life_mpi: life_flags = -DWITH_MPI
tests/life/life_mpi_nccl tests/life/mpich/life_mpi_nccl: \
	life_flags = -DWITH_MPI -DWITH_NCCL
tests/life/life_mpi tests/life/mpich/life_mpi: life_link =
tests/life/nccl_user $(life_nccl_programs): life_cc = $(CC)
life_wrapped = OMPI_CC='$(CC)' MPICH_CC='$(CC)'
$(life_mpi_programs): life_cc = $(life_wrapped) $(MPICC)
$(life_mpich_programs): life_cc = $(life_wrapped) $(MPICC_MPICH)

$(life_programs): tests/fakes/fake_nccl.h tests/fakes/fake_cuda.h \
	$(fake_nccl) config.h
	$(AM_V_at)$(MKDIR_P) $(@D)
	$(AM_V_CCLD)$(life_cc) $(life_compile) $(life_flags) \
		$(filter %.c,$^) -o $@ $(life_link)

LIFE_TESTS = \
	tests/life/check_nccl_abi \
	tests/life/check_nccl_tsan \
	tests/life/check_programs \
	tests/life/test_fake_nccl.py
