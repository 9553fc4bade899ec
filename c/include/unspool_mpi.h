/* The ranks of a communicator of MPI (3.0 or later), for unspool_checkpointer_open. Compiled with
   the program, as C or C++, so that one libunspool serves every MPI.

   unspool_mpi ranks;
   unspool_mpi_init(&ranks, MPI_COMM_WORLD);          collective; makes a communicator of its own
   unspool_checkpointer_open(path, options, &ranks.ranks, &checkpointer);
   ...
   unspool_mpi_free(&ranks);                          collective; after unspool_checkpointer_free

   Ranks talk by the nonblocking collectives of MPI, and a part for a partner goes to that rank
   alone. A rank whose time is over has rank 0 call the roll: every rank that waits in a call
   answers, and all of them return with the ranks that did not. The communicator is not used after
   that: what is under way there is never completed, and its memory is not given back. */

#ifndef UNSPOOL_MPI_H
#define UNSPOOL_MPI_H

#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include <mpi.h>

#include "unspool.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What `ranks` is made of; it has to stay where it is while a checkpointer has it. */
typedef struct unspool_mpi {
    unspool_ranks ranks;
    MPI_Comm comm;
    /* A call did not end: the communicator is not used any more. */
    int is_broken;
} unspool_mpi;

enum {
    /* Parts for other ranks. */
    UNSPOOL_MPI_PART = 7711,
    /* A rank whose time is over asks rank 0 to call the roll. */
    UNSPOOL_MPI_LATE = 7712,
    /* Rank 0 asks who is here; a rank answers; rank 0 says who did. */
    UNSPOOL_MPI_ROLL = 7713,
    UNSPOOL_MPI_HERE = 7714,
    UNSPOOL_MPI_VERDICT = 7715
};

/* Sleeps a millisecond, unless the wait began just now. */
static inline void unspool_mpi_nap(double begun) {
    if (MPI_Wtime() - begun > 0.01) {
        poll(NULL, 0, 1);
    }
}

/* Sends an empty message. */
static inline void unspool_mpi_signal(const unspool_mpi *mpi, int target, int tag) {
    MPI_Request request;
    if (MPI_Isend(NULL, 0, MPI_BYTE, target, tag, mpi->comm, &request) == MPI_SUCCESS) {
        MPI_Request_free(&request);
    }
}

/* Takes an empty message; returns its rank, or -1 when there is none. */
static inline int unspool_mpi_signalled(const unspool_mpi *mpi, int source, int tag) {
    MPI_Status status;
    int is_there = 0;
    if (MPI_Iprobe(source, tag, mpi->comm, &is_there, &status) != MPI_SUCCESS || !is_there) {
        return -1;
    }
    source = status.MPI_SOURCE;
    MPI_Recv(NULL, 0, MPI_BYTE, source, tag, mpi->comm, MPI_STATUS_IGNORE);
    return source;
}

/* The seconds in which a rank that waits in a call answers when the roll is called. */
static inline double unspool_mpi_grace(double seconds) {
    return seconds > 80 ? 5 : 1 + seconds / 20;
}

/* Rank 0 finds out who is here, and tells those that are. */
static inline void unspool_mpi_call_roll(const unspool_mpi *mpi, double grace, char *here,
                                         MPI_Request *told) {
    const int size = (int)mpi->ranks.size;
    const double begun = MPI_Wtime();
    int found = 1, count = 0, is_done = 0;
    for (int rank = 1; rank < size; rank++) {
        unspool_mpi_signal(mpi, rank, UNSPOOL_MPI_ROLL);
    }
    here[0] = 1;
    while (found < size && MPI_Wtime() - begun < grace) {
        const int rank = unspool_mpi_signalled(mpi, MPI_ANY_SOURCE, UNSPOOL_MPI_HERE);
        if (rank < 0) {
            unspool_mpi_nap(begun);
        } else {
            found += !here[rank];
            here[rank] = 1;
        }
    }
    for (int rank = 1; rank < size; rank++) {
        if (here[rank]) {
            MPI_Isend(here, size, MPI_CHAR, rank, UNSPOOL_MPI_VERDICT, mpi->comm, &told[count++]);
        }
    }
    while (!is_done && MPI_Wtime() - begun < 2 * grace) {
        MPI_Testall(count, told, &is_done, MPI_STATUSES_IGNORE);
    }
}

/* Another rank answers the roll, and hears who is here; that is all but rank 0 when that one does
   not call it. */
static inline void unspool_mpi_answer_roll(const unspool_mpi *mpi, double grace, char *here) {
    const double begun = MPI_Wtime();
    int is_there = 0;
    while (!is_there && MPI_Wtime() - begun < 2 * grace + 1) {
        if (unspool_mpi_signalled(mpi, 0, UNSPOOL_MPI_ROLL) == 0) {
            unspool_mpi_signal(mpi, 0, UNSPOOL_MPI_HERE);
        }
        MPI_Iprobe(0, UNSPOOL_MPI_VERDICT, mpi->comm, &is_there, MPI_STATUS_IGNORE);
        unspool_mpi_nap(begun);
    }
    if (is_there) {
        MPI_Recv(here, (int)mpi->ranks.size, MPI_CHAR, 0, UNSPOOL_MPI_VERDICT, mpi->comm,
                 MPI_STATUS_IGNORE);
    } else {
        memset(here, 1, mpi->ranks.size);
        here[0] = 0;
    }
}

/* A call did not end in time, here or elsewhere: finds out which ranks are not here. Returns 0 when
   some are not, which `gathered` lacks then, and another number when it is not known why. */
static inline int unspool_mpi_missing(unspool_mpi *mpi, double seconds,
                                      unspool_gathered *gathered) {
    const double grace = unspool_mpi_grace(seconds);
    const size_t size = mpi->ranks.size;
    char *here = (char *)calloc(size, 1);
    MPI_Request *told = (MPI_Request *)malloc(size * sizeof *told);
    int missing = 0, code = 0;
    /* Their memory is needed as long as a verdict is under way, which is not known. */
    mpi->is_broken = 1;
    if (here == NULL || told == NULL) {
        return 1;
    }
    if (mpi->ranks.rank == 0) {
        unspool_mpi_call_roll(mpi, grace, here, told);
    } else {
        unspool_mpi_signal(mpi, 0, UNSPOOL_MPI_LATE);
        unspool_mpi_answer_roll(mpi, grace, here);
    }
    for (unsigned rank = 0; !code && rank < size; rank++) {
        missing += !here[rank];
        code = here[rank] && unspool_gathered_set(gathered, rank, here, 0);
    }
    return code || !missing;
}

/* Waits until requests are done, for so many seconds since `begun`, or until the roll is called. */
static inline int unspool_mpi_wait(unspool_mpi *mpi, MPI_Request *requests, int count,
                                   double begun, double seconds) {
    const int is_lead = mpi->ranks.rank == 0;
    const int source = is_lead ? MPI_ANY_SOURCE : 0;
    int is_done = 0, is_there = 0;
    for (;;) {
        const double waited = MPI_Wtime() - begun;
        if (MPI_Testall(count, requests, &is_done, MPI_STATUSES_IGNORE) != MPI_SUCCESS) {
            return 0;
        }
        if (!is_done && waited > 0.01) {
            MPI_Iprobe(source, is_lead ? UNSPOOL_MPI_LATE : UNSPOOL_MPI_ROLL, mpi->comm, &is_there,
                       MPI_STATUS_IGNORE);
        }
        if (is_done || is_there || waited > seconds) {
            return is_done;
        }
        unspool_mpi_nap(begun);
    }
}

/* Gives to `gathered` what each rank has at its place in `all`. */
static inline int unspool_mpi_tell(const unspool_mpi *mpi, const char *all, const int *counts,
                                   const int *starts, unspool_gathered *gathered) {
    int code = 0;
    for (unsigned rank = 0; !code && rank < mpi->ranks.size; rank++) {
        code = unspool_gathered_set(gathered, rank, all + starts[rank], (size_t)counts[rank]);
    }
    return code;
}

/* `all_gather` of `unspool_ranks`. */
static inline int unspool_mpi_all_gather(void *context, const void *message, size_t bytes,
                                         double seconds, unspool_gathered *gathered) {
    unspool_mpi *mpi = (unspool_mpi *)context;
    const unsigned size = mpi->ranks.size;
    const double begun = MPI_Wtime();
    MPI_Request request;
    long long total = 0;
    char *all = NULL;
    int *counts, *starts, code = 1;
    if (mpi->is_broken || bytes > INT_MAX) {
        return 1;
    }
    counts = (int *)malloc(2 * (size_t)size * sizeof *counts);
    if (counts == NULL) {
        return 1;
    }
    starts = counts + size;
    counts[mpi->ranks.rank] = (int)bytes;
    if (MPI_Iallgather(MPI_IN_PLACE, 0, MPI_INT, counts, 1, MPI_INT, mpi->comm, &request) ||
        !unspool_mpi_wait(mpi, &request, 1, begun, seconds)) {
        return unspool_mpi_missing(mpi, seconds, gathered);
    }
    for (unsigned rank = 0; rank < size && total <= INT_MAX; rank++) {
        starts[rank] = (int)total;
        total += counts[rank];
    }
    if (total <= INT_MAX) {
        all = (char *)malloc((size_t)total + 1);
    }
    if (all != NULL) {
        memcpy(all + starts[mpi->ranks.rank], message, bytes);
        if (MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_BYTE, all, counts, starts, MPI_BYTE, mpi->comm,
                            &request) ||
            !unspool_mpi_wait(mpi, &request, 1, begun, seconds)) {
            return unspool_mpi_missing(mpi, seconds, gathered);
        }
        code = unspool_mpi_tell(mpi, all, counts, starts, gathered);
    }
    free(all);
    free(counts);
    return code;
}

/* Sends `bytes` to one rank while as many as `room` come from another one; whether that was in
   time. */
static inline int unspool_mpi_swap(unspool_mpi *mpi, const void *mine, int bytes, int to,
                                   void *theirs, int room, int from, double begun,
                                   double seconds) {
    MPI_Request both[2];
    return !MPI_Irecv(theirs, room, MPI_BYTE, from, UNSPOOL_MPI_PART, mpi->comm, &both[0]) &&
           !MPI_Isend(mine, bytes, MPI_BYTE, to, UNSPOOL_MPI_PART, mpi->comm, &both[1]) &&
           unspool_mpi_wait(mpi, both, 2, begun, seconds);
}

/* `pass` of `unspool_ranks`: lengths come first. */
static inline int unspool_mpi_pass(void *context, const void *message, size_t bytes, uint32_t to,
                                   uint32_t from, double seconds, unspool_gathered *gathered) {
    unspool_mpi *mpi = (unspool_mpi *)context;
    const double begun = MPI_Wtime();
    /* In memory of their own, as a call that is late leaves them to MPI. */
    int *lengths = (int *)malloc(2 * sizeof *lengths);
    char *mine = (char *)malloc(bytes + 1), *theirs = NULL;
    int code = 1;
    if (mpi->is_broken || lengths == NULL || mine == NULL || bytes > INT_MAX) {
        free(lengths);
        free(mine);
        return 1;
    }
    memcpy(mine, message, bytes);
    lengths[0] = (int)bytes;
    if (!unspool_mpi_swap(mpi, &lengths[0], sizeof *lengths, (int)to, &lengths[1], sizeof *lengths,
                          (int)from, begun, seconds)) {
        return unspool_mpi_missing(mpi, seconds, gathered);
    }
    theirs = (char *)malloc((size_t)lengths[1] + 1);
    if (theirs != NULL) {
        if (!unspool_mpi_swap(mpi, mine, lengths[0], (int)to, theirs, lengths[1], (int)from, begun,
                              seconds)) {
            return unspool_mpi_missing(mpi, seconds, gathered);
        }
        code = unspool_gathered_set(gathered, from, theirs, (size_t)lengths[1]);
    }
    free(theirs);
    free(mine);
    free(lengths);
    return code;
}

/* Makes the ranks of a communicator, on all of them. Returns what MPI returned. */
static inline int unspool_mpi_init(unspool_mpi *mpi, MPI_Comm comm) {
    int rank = 0, size = 1, code = MPI_Comm_dup(comm, &mpi->comm);
    if (code == MPI_SUCCESS) {
        code = MPI_Comm_rank(mpi->comm, &rank);
    }
    if (code == MPI_SUCCESS) {
        code = MPI_Comm_size(mpi->comm, &size);
    }
    mpi->ranks.context = mpi;
    mpi->ranks.rank = (uint32_t)rank;
    mpi->ranks.size = (uint32_t)size;
    mpi->ranks.all_gather = unspool_mpi_all_gather;
    mpi->ranks.pass = unspool_mpi_pass;
    mpi->is_broken = 0;
    return code;
}

/* Gives the communicator back, on all ranks; what a call that did not end still uses stays. */
static inline int unspool_mpi_free(unspool_mpi *mpi) {
    return mpi->is_broken ? MPI_SUCCESS : MPI_Comm_free(&mpi->comm);
}

#ifdef __cplusplus
}
#endif

#endif /* UNSPOOL_MPI_H */
