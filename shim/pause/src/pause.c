/*
 * The process of a pod sandbox: it holds the pod's namespaces, reaps orphans
 * where the pod shares one PID namespace, and ends on SIGTERM or SIGINT.
 *
 * With an argument, whatever it is, it first leaves the network namespace that
 * it was started in for a new one, and gives up every capability, of which it
 * has CAP_SYS_ADMIN for just that. Whoever sees it without capabilities knows
 * that its network is its own. Where it cannot do both it ends with a status of
 * its own: UNABLE is also in pause.go.
 *
 * No C library, no data, no stack to speak of: a handful of system calls. The
 * signals are blocked and waited for, because process 1 never receives an
 * unblocked signal that has no handler.
 */

#if defined(__x86_64__)
enum { SYS_rt_sigprocmask = 14, SYS_wait4 = 61, SYS_capset = 126, SYS_rt_sigtimedwait = 128, SYS_exit_group = 231, SYS_unshare = 272 };

/* The kernel leaves the number of arguments at the stack pointer. */
__asm__(".globl _start\n_start:\n\tmov (%rsp), %rdi\n\tand $-16, %rsp\n\tcall run\n");

static long call(long n, long a, long b, long c, long d)
{
	long r;
	register long r10 __asm__("r10") = d;
	__asm__ volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
	return r;
}
#elif defined(__aarch64__)
enum { SYS_rt_sigprocmask = 135, SYS_wait4 = 260, SYS_capset = 91, SYS_rt_sigtimedwait = 137, SYS_exit_group = 94, SYS_unshare = 97 };

/* The kernel leaves the number of arguments at the stack pointer. */
__asm__(".globl _start\n_start:\n\tldr x0, [sp]\n\tbl run\n");

static long call(long n, long a, long b, long c, long d)
{
	register long x8 __asm__("x8") = n;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
	return x0;
}
#else
#error "pause is written for amd64 and arm64"
#endif

enum { SIG_BLOCK = 0, SIGINT = 2, SIGTERM = 15, SIGCHLD = 17, WNOHANG = 1 };
enum { CLONE_NEWNET = 0x40000000, CAPABILITY_VERSION_3 = 0x20080522 };
enum { UNABLE = 83 };

#define BIT(signal) (1UL << ((signal) - 1))

/* own_network says whether it worked. */
static int own_network(void)
{
	struct { unsigned int version; int pid; } whose = { CAPABILITY_VERSION_3, 0 };
	volatile unsigned int none[6]; /* effective, permitted, inheritable, twice */

	for (int i = 0; i < 6; i++)
		none[i] = 0;
	return call(SYS_unshare, CLONE_NEWNET, 0, 0, 0) == 0 &&
	       call(SYS_capset, (long)&whose, (long)none, 0, 0) == 0;
}

void run(long arguments)
{
	unsigned long set = BIT(SIGINT) | BIT(SIGTERM) | BIT(SIGCHLD);

	call(SYS_rt_sigprocmask, SIG_BLOCK, (long)&set, 0, sizeof set);
	if (arguments > 1 && !own_network())
		call(SYS_exit_group, UNABLE, 0, 0, 0);
	for (;;) {
		long signal = call(SYS_rt_sigtimedwait, (long)&set, 0, 0, sizeof set);

		if (signal == SIGINT || signal == SIGTERM)
			call(SYS_exit_group, 0, 0, 0, 0);
		while (call(SYS_wait4, -1, 0, WNOHANG, 0) > 0)
			;
	}
}
