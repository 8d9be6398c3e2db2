/* A clock that is wrong for one program: loaded before the C library, by the tests of clocks. */
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = (int)syscall(SYS_clock_gettime, clock, now);
    const char *shift = getenv("CLOCK_SHIFT"), *frozen = getenv("CLOCK_FROZEN");
    if (result == 0 && clock == CLOCK_REALTIME) {
        if (shift)
            now->tv_sec += atoll(shift);
        if (frozen) {
            now->tv_sec = atoll(frozen);
            now->tv_nsec = 0;
        }
    }
    return result;
}
