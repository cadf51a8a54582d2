// SPDX-License-Identifier: MPL-2.0
// LD_PRELOAD: where a program crashes, as addresses in its libraries, on stderr.
#include <execinfo.h>
#include <signal.h>
#include <stddef.h>
#include <unistd.h>

static void tell(int signal_number)
{
    void *frames[64];
    static const char head[] = "crash.c: the program has crashed at\n";
    ssize_t written = write(STDERR_FILENO, head, sizeof head - 1);
    (void)written; // there is nobody to tell
    backtrace_symbols_fd(frames, backtrace(frames, 64), STDERR_FILENO);
    // The handler is gone by now: the program ends as it would have.
    raise(signal_number);
}

__attribute__((constructor)) static void begin(void)
{
    struct sigaction action = {.sa_handler = tell, .sa_flags = SA_RESETHAND | SA_NODEFER};
    void *first[1];
    // What backtrace loads on its first call is there then.
    backtrace(first, 1);
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    sigaction(SIGABRT, &action, NULL);
}
