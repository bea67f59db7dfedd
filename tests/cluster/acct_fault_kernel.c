/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a command on a kernel that has no pidfds: pidfd_open() and
 * pidfd_send_signal() fail with ENOSYS. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <unistd.h>

#define SEND_SIGNAL 424		/* the same on all machines */
#define OPEN 434

int main(int argc, char **argv)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
			 offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OPEN, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SEND_SIGNAL, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
	};
	struct sock_fprog prog = { sizeof(code) / sizeof(*code), code };

	if (argc < 2 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog))
		return 99;
	execvp(argv[1], argv + 1);
	return 98;
}
