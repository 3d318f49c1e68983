// What can a process give up, so that whoever takes it over gains nothing? The doors that the kernel can close.
#pragma once

#include <string>
#include <vector>

#if defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__)) && defined(__LP64__)
#define MODELKEEPER_CONFINES 1
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace modelkeeper {

#ifdef MODELKEEPER_CONFINES

// A filter of system calls, in the kernel's own little language: what is not allowed is answered by EPERM.
class CallFilter {
    std::vector<sock_filter> code_;

    void load(size_t offset) { code_.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, uint32_t(offset))); }
    void answer(uint32_t how) { code_.push_back(BPF_STMT(BPF_RET | BPF_K, how)); }
    static size_t low(int argument) { return offsetof(seccomp_data, args) + 8 * size_t(argument); }

  public:
    static constexpr uint32_t REFUSED = SECCOMP_RET_ERRNO | EPERM, UNKNOWN = SECCOMP_RET_ERRNO | ENOSYS;

    CallFilter() {
#if defined(__x86_64__)
        const uint32_t here = AUDIT_ARCH_X86_64;
#else
        const uint32_t here = AUDIT_ARCH_AARCH64;
#endif
        load(offsetof(seccomp_data, arch));
        code_.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, here, 1, 0));
        answer(SECCOMP_RET_KILL_PROCESS);  // numbers of another architecture mean other calls
        load(offsetof(seccomp_data, nr));
        code_.push_back(BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000u, 0, 1));  // x32
        answer(UNKNOWN);
    }

    void give(long call, uint32_t how) {
        code_.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, uint32_t(call), 0, 1));
        answer(how);
    }

    // Allowed if the lower half of an argument, of which these bits count, is this. The upper half is ignored.
    void allow_if(long call, int argument, uint32_t bits, uint32_t wanted) {
        code_.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, uint32_t(call), 0, 5));
        load(low(argument));
        code_.push_back(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, bits));
        code_.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, wanted, 0, 1));
        answer(SECCOMP_RET_ALLOW);
        answer(REFUSED);
    }

    // Allowed if a pointer among the arguments is null.
    void allow_if_null(long call, int argument) {
        code_.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, uint32_t(call), 0, 6));
        load(low(argument));
        code_.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 3));
        load(low(argument) + 4);
        code_.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 1));
        answer(SECCOMP_RET_ALLOW);
        answer(REFUSED);
    }

    // From now on, for all threads.
    bool install() {
        answer(REFUSED);
        sock_fprog program{static_cast<unsigned short>(code_.size()), code_.data()};
        return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
    }
};

// Memory, threads, time, and what is open already: nothing that opens, connects, executes, or reaches others.
inline bool filter_calls() {
    CallFilter filter;
    const long allowed[] = {
        SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_recvfrom, SYS_sendto, SYS_close, SYS_lseek, SYS_fstat,
        SYS_mmap, SYS_munmap, SYS_mprotect, SYS_mremap, SYS_madvise, SYS_brk, SYS_membarrier, SYS_mincore,
        SYS_futex, SYS_set_robust_list, SYS_sched_yield, SYS_sched_getaffinity, SYS_getcpu,
        SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_sigaltstack, SYS_restart_syscall,
        SYS_clock_gettime, SYS_clock_getres, SYS_clock_nanosleep, SYS_nanosleep, SYS_gettimeofday,
        SYS_getpid, SYS_getppid, SYS_gettid, SYS_getuid, SYS_geteuid, SYS_getgid, SYS_getegid, SYS_getrusage,
        SYS_uname, SYS_sysinfo, SYS_getrandom, SYS_ppoll, SYS_exit, SYS_exit_group,
#ifdef SYS_rseq
        SYS_rseq,
#endif
#ifdef SYS_poll
        SYS_poll,
#endif
#ifdef SYS_getrlimit
        SYS_getrlimit,
#endif
    };
    for (long call : allowed) filter.give(call, SECCOMP_RET_ALLOW);
    const uint32_t of_a_thread = 0x00000100u | 0x00000800u | 0x00010000u;  // CLONE_VM, _SIGHAND, _THREAD
    filter.allow_if(SYS_clone, 0, of_a_thread, of_a_thread);
#ifdef SYS_clone3
    filter.give(SYS_clone3, CallFilter::UNKNOWN);  // its flags lie in memory: the C library then takes the other
#endif
    filter.allow_if_null(SYS_prlimit64, 2);  // to read a limit, not to set one
    filter.allow_if(SYS_tgkill, 0, ~0u, uint32_t(getpid()));  // to abort
    filter.allow_if(SYS_prctl, 0, ~0u, PR_SET_NAME);
    return filter.install();
}

// Every right that landlock knows of, to files, ports and other processes, is given up.
inline bool give_up_rights() {
    constexpr long CREATE = 444, RESTRICT = 446;
    const long version = syscall(CREATE, nullptr, size_t(0), 1u);
    if (version < 1) return false;
    struct {
        uint64_t files, ports, scopes;
    } rights{(1ull << (version >= 5 ? 16 : version >= 3 ? 15 : version >= 2 ? 14 : 13)) - 1,
             version >= 4 ? 3ull : 0ull, version >= 6 ? 3ull : 0ull};
    const size_t size = version >= 6 ? 24 : version >= 4 ? 16 : 8;
    const int rules = int(syscall(CREATE, &rights, size, 0u));
    if (rules < 0) return false;
    const bool done = syscall(RESTRICT, rules, 0u) == 0;
    close(rules);
    return done;
}

#endif

// Give up for good whatever the kernel lets this process give up; what that was.
inline std::vector<std::string> confine() {
    std::vector<std::string> held;
#ifdef MODELKEEPER_CONFINES
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) == 0) held.push_back("ends with who started it");
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0) held.push_back("not to be traced");
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return held;
    held.push_back("no new privileges");
    if (give_up_rights()) held.push_back("landlock");
    if (filter_calls()) held.push_back("seccomp");
#endif
    return held;
}

}  // namespace modelkeeper
