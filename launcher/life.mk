# libddp_lifecycle.so: MPI and NCCL start and stop in order. Built without
# either, needs libc alone; its sources are a convenience library for the unit
# tests. Of core it has the one file that it uses.
lifecycle_sources = launcher/life.h launcher/life_comm.h launcher/life_comm_int.h \
	launcher/life_nccl.h launcher/life_real.h \
	launcher/life_api.c launcher/life_coll.c launcher/life_comm.c \
	launcher/life_comm_look.c \
	launcher/life_end.c launcher/life_left.c launcher/life_link.c \
	launcher/life_mpi.c launcher/life_mpi_abi.c \
	launcher/life_nccl.c launcher/life_real.c launcher/life_signal.c \
	launcher/life_start.c launcher/life_state.c launcher/life_thread.c \
	launcher/life_unseen.c launcher/life_watch.c

include_HEADERS = launcher/ddp_lifecycle.h
lib_LTLIBRARIES += libddp_lifecycle.la
libddp_lifecycle_la_SOURCES = $(lifecycle_sources) core/ddp_life.c core/ddp_err.c
libddp_lifecycle_la_CPPFLAGS = $(AM_CPPFLAGS)
libddp_lifecycle_la_LIBADD = -ldl -lpthread
libddp_lifecycle_la_LDFLAGS = $(AM_LDFLAGS) $(MODULE_LDFLAGS) -avoid-version \
	-shared -Wl,-Bsymbolic-functions \
	-Wl,--version-script=$(srcdir)/launcher/life.map
EXTRA_libddp_lifecycle_la_DEPENDENCIES = $(srcdir)/launcher/life.map
EXTRA_DIST += launcher/life.map
