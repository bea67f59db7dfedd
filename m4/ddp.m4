# SPDX-License-Identifier: Apache-2.0
# The project's own configure macros; nothing from autoconf-archive is needed.

# DDP_CC_FLAG(FLAG, VARIABLE): adds FLAG to VARIABLE if the compiler takes it
# without a warning (clang only warns about a flag that it does not know).
AC_DEFUN([DDP_CC_FLAG], [
AS_VAR_PUSHDEF([ddp_cache], [ddp_cv_cc_$1])dnl
AC_CACHE_CHECK([whether $CC accepts $1], [ddp_cache], [
	ddp_save_CFLAGS=$CFLAGS
	CFLAGS="$CFLAGS -Werror $1"
	AC_COMPILE_IFELSE([AC_LANG_PROGRAM([], [])],
		[AS_VAR_SET([ddp_cache], [yes])],
		[AS_VAR_SET([ddp_cache], [no])])
	CFLAGS=$ddp_save_CFLAGS
])
AS_VAR_IF([ddp_cache], [yes], [AS_VAR_APPEND([$2], [" $1"])])
AS_VAR_POPDEF([ddp_cache])dnl
])

# DDP_LD_FLAG(FLAG, VARIABLE): the same for a flag of the link step.
AC_DEFUN([DDP_LD_FLAG], [
AS_VAR_PUSHDEF([ddp_cache], [ddp_cv_ld_$1])dnl
AC_CACHE_CHECK([whether the linker accepts $1], [ddp_cache], [
	ddp_save_LDFLAGS=$LDFLAGS
	LDFLAGS="$LDFLAGS $1"
	AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])],
		[AS_VAR_SET([ddp_cache], [yes])],
		[AS_VAR_SET([ddp_cache], [no])])
	LDFLAGS=$ddp_save_LDFLAGS
])
AS_VAR_IF([ddp_cache], [yes], [AS_VAR_APPEND([$2], [" $1"])])
AS_VAR_POPDEF([ddp_cache])dnl
])

# DDP_MISSING(WHAT, DEB, RPM, HINT): stops, naming the package to install.
AC_DEFUN([DDP_MISSING], [
AC_MSG_ERROR([$1 not found.
  Debian, Ubuntu: apt-get install $2
  RHEL, SUSE:     dnf install $3 (or zypper)
  $4])
])

# DDP_PKG(MODULE, VARIABLE): VARIABLE is the module's version or "no".
AC_DEFUN([DDP_PKG], [
AC_MSG_CHECKING([for $1 (pkg-config)])
$2=no
AS_IF([test -n "$PKG_CONFIG" && $PKG_CONFIG --exists "$1" 2>/dev/null],
	[$2=`$PKG_CONFIG --modversion "$1"`])
AC_MSG_RESULT([$$2])
])

# DDP_FIND_FILE(NAME, VARIABLE, DIRS): the first DIR that holds NAME, or "no".
AC_DEFUN([DDP_FIND_FILE], [
AC_MSG_CHECKING([for $1])
$2=no
for ddp_dir in $3; do
	AS_IF([test -f "$ddp_dir/$1"], [$2=$ddp_dir; break])
done
AC_MSG_RESULT([$$2])
])
