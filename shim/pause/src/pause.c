/*
 * The process of a pod sandbox: it holds the pod's namespaces, reaps orphans
 * where the pod shares one PID namespace, and ends on SIGTERM or SIGINT.
 *
 * No C library, no data, no stack to speak of: three system calls. The signals
 * are blocked and waited for, because process 1 never receives an unblocked
 * signal that has no handler.
 */

#if defined(__x86_64__)
enum { SYS_rt_sigprocmask = 14, SYS_wait4 = 61, SYS_rt_sigtimedwait = 128, SYS_exit_group = 231 };

static long call(long n, long a, long b, long c, long d)
{
	long r;
	register long r10 __asm__("r10") = d;
	__asm__ volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
	return r;
}
#elif defined(__aarch64__)
enum { SYS_rt_sigprocmask = 135, SYS_wait4 = 260, SYS_rt_sigtimedwait = 137, SYS_exit_group = 94 };

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

#define BIT(signal) (1UL << ((signal) - 1))

void _start(void)
{
	unsigned long set = BIT(SIGINT) | BIT(SIGTERM) | BIT(SIGCHLD);

	call(SYS_rt_sigprocmask, SIG_BLOCK, (long)&set, 0, sizeof set);
	for (;;) {
		long signal = call(SYS_rt_sigtimedwait, (long)&set, 0, 0, sizeof set);

		if (signal == SIGINT || signal == SIGTERM)
			call(SYS_exit_group, 0, 0, 0, 0);
		while (call(SYS_wait4, -1, 0, WNOHANG, 0) > 0)
			;
	}
}
