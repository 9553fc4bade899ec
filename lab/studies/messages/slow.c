/* A network that is slowed down, to be preloaded: each rank has a link of SLOW_NETWORK bytes a
 * second, and a send returns no earlier than its bytes have left by it. Only sends are slowed
 * that programs of this folder make, and those of a layer that is preloaded before this library.
 * Nothing else waits.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdlib.h>
#include <time.h>

/* What is left to the end of a wait and is not slept: a timer is late by about as much. */
static const double SPUN = 100e-6;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Bytes a second; 0 when it is not slowed. */
static double rate(void)
{
    static double known = -1;
    if (known < 0) {
        const char *text = getenv("SLOW_NETWORK");
        known = text ? atof(text) : 0;
    }
    return known;
}

/* Waits until so many values have left. Others get the core while there is long to wait. */
static void leave(int count, MPI_Datatype type)
{
    int bytes;
    MPI_Type_size(type, &bytes);
    if (rate() <= 0)
        return;
    double end = now() + (double)count * bytes / rate(), left;
    while ((left = end - now()) > 0)
        if (left > SPUN) {
            struct timespec time = {0, (long)(1e9 * (left - SPUN < 0.9 ? left - SPUN : 0.9))};
            nanosleep(&time, NULL);
        }
}

#define SEND (const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm)
#define ISEND (const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, \
               MPI_Request *request)
#define BOTH (const void *data, int count, MPI_Datatype type, int to, int tag, void *into,     \
              int most, MPI_Datatype of, int from, int with, MPI_Comm comm, MPI_Status *status)

/* A function of this name that waits and calls the one after this library. */
#define SLOWED(name, parameters, ...)                                      \
    int name parameters                                                    \
    {                                                                      \
        static int(*real) parameters;                                      \
        if (!real)                                                         \
            *(void **)&real = dlsym(RTLD_NEXT, #name);                     \
        if (!real)                                                         \
            abort();                                                       \
        if (to != MPI_PROC_NULL)                                           \
            leave(count, type);                                            \
        return real(__VA_ARGS__);                                          \
    }

SLOWED(MPI_Send, SEND, data, count, type, to, tag, comm)
SLOWED(PMPI_Send, SEND, data, count, type, to, tag, comm)
SLOWED(MPI_Isend, ISEND, data, count, type, to, tag, comm, request)
SLOWED(PMPI_Isend, ISEND, data, count, type, to, tag, comm, request)
SLOWED(MPI_Sendrecv, BOTH, data, count, type, to, tag, into, most, of, from, with, comm, status)
SLOWED(PMPI_Sendrecv, BOTH, data, count, type, to, tag, into, most, of, from, with, comm, status)
