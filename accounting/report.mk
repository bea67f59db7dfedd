# ddp-report
report_pure = accounting/report.h accounting/report_use.h \
	accounting/report_advice.c accounting/report_rollup.c \
	accounting/report_use.c

bin_PROGRAMS += ddp-report
ddp_report_SOURCES = $(report_pure) \
	accounting/report_app.h accounting/report_grid.h \
	accounting/report_bar.c accounting/report_call.c \
	accounting/report_format.c accounting/report_grid.c \
	accounting/report_json.c accounting/report_list.c \
	accounting/report_load.c accounting/report_main.c \
	accounting/report_parsable.c accounting/report_select.c \
	accounting/report_table.c accounting/report_time.c \
	accounting/report_views.c accounting/report_watch.c
ddp_report_CPPFLAGS = $(AM_CPPFLAGS) $(JANSSON_CFLAGS) $(SMARTCOLS_CFLAGS)
ddp_report_LDADD = libddpacct.la libddpcompat.la libddpcore.la \
	$(JANSSON_LIBS) $(SMARTCOLS_LIBS) $(SLURM_LIBS)
