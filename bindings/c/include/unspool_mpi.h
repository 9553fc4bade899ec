/* The ranks of a communicator of MPI, for unspool_checkpointer_open. Compiled with the program, so
   that one libunspool serves every MPI.

   unspool_mpi ranks;
   unspool_mpi_init(&ranks, MPI_COMM_WORLD);          collective; makes a communicator of its own
   unspool_checkpointer_open(path, options, &ranks.ranks, &checkpointer);
   ...
   unspool_mpi_free(&ranks);                          collective; after unspool_checkpointer_free */

#ifndef UNSPOOL_MPI_H
#define UNSPOOL_MPI_H

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <mpi.h>

#include "unspool.h"

/* What `ranks` is made of; it has to stay where it is while a checkpointer has it. */
typedef struct unspool_mpi {
    unspool_ranks ranks;
    MPI_Comm comm;
} unspool_mpi;

enum { UNSPOOL_MPI_TAG = 7711 };

/* Rank 0 waits for so many seconds; the others a little longer, as it tells them who is missing. */
static double unspool_mpi_limit(const unspool_mpi *mpi, double seconds) {
    return mpi->ranks.rank == 0 ? seconds : seconds * 1.1 + 2.0;
}

/* Receives a message of `source` that comes before `end`. Returns 0 with null when none came. */
static int unspool_mpi_receive(const unspool_mpi *mpi, int source, double end, char **message,
                               int *bytes) {
    MPI_Message found;
    MPI_Status status;
    int is_there = 0;
    *message = NULL;
    do {
        if (MPI_Improbe(source, UNSPOOL_MPI_TAG, mpi->comm, &is_there, &found, &status)) {
            return 1;
        }
    } while (!is_there && MPI_Wtime() < end);
    if (!is_there) {
        return 0;
    }
    if (MPI_Get_count(&status, MPI_BYTE, bytes)) {
        return 1;
    }
    *message = malloc((size_t)*bytes + 1);
    return *message == NULL || MPI_Mrecv(*message, *bytes, MPI_BYTE, &found, &status);
}

/* Hands a message to MPI; it is on its way when this returns, or `end` has come. */
static int unspool_mpi_send(const unspool_mpi *mpi, int target, double end, const char *message,
                            size_t bytes) {
    MPI_Request request;
    int is_done = 0;
    if (bytes > INT_MAX ||
        MPI_Isend(message, (int)bytes, MPI_BYTE, target, UNSPOOL_MPI_TAG, mpi->comm, &request)) {
        return 1;
    }
    while (!is_done && MPI_Wtime() < end) {
        if (MPI_Test(&request, &is_done, MPI_STATUS_IGNORE)) {
            return 1;
        }
    }
    if (!is_done) {
        MPI_Cancel(&request);
        return MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    return 0;
}

/* Takes apart what rank 0 gave: for each rank its length, or all bits for none, and its bytes. */
static int unspool_mpi_take(const unspool_mpi *mpi, const char *all, size_t bytes,
                            unspool_gathered *gathered) {
    size_t at = 0;
    for (unsigned rank = 0; rank < mpi->ranks.size; rank++) {
        unsigned long long length;
        if (bytes - at < sizeof length) {
            return 1;
        }
        memcpy(&length, all + at, sizeof length);
        at += sizeof length;
        if (length == ULLONG_MAX) {
            continue;
        }
        if (bytes - at < length || unspool_gathered_set(gathered, rank, all + at, (size_t)length)) {
            return 1;
        }
        at += (size_t)length;
    }
    return 0;
}

/* Appends the message of a rank, or that there is none; takes the memory of both. */
static char *unspool_mpi_append(char *all, size_t *bytes, char *message, size_t length) {
    const unsigned long long told = message == NULL ? ULLONG_MAX : length;
    const size_t more = message == NULL ? 0 : length;
    char *grown = realloc(all, *bytes + sizeof told + more + 1);
    if (grown == NULL) {
        free(all);
    } else {
        memcpy(grown + *bytes, &told, sizeof told);
        if (message != NULL) {
            memcpy(grown + *bytes + sizeof told, message, more);
        }
        *bytes += sizeof told + more;
    }
    free(message);
    return grown;
}

/* Rank 0 hears from all, and tells all. */
static int unspool_mpi_lead(const unspool_mpi *mpi, const void *message, size_t bytes, double end,
                            unspool_gathered *gathered) {
    size_t length = 0;
    int code = 0;
    char *mine = malloc(bytes + 1), *all = NULL;
    if (mine == NULL) {
        return 1;
    }
    memcpy(mine, message, bytes);
    all = unspool_mpi_append(NULL, &length, mine, bytes);
    for (int rank = 1; all != NULL && !code && rank < (int)mpi->ranks.size; rank++) {
        char *found = NULL;
        int count = 0;
        code = unspool_mpi_receive(mpi, rank, end, &found, &count);
        all = unspool_mpi_append(all, &length, found, (size_t)count);
    }
    code = code || all == NULL;
    for (int rank = 1; !code && rank < (int)mpi->ranks.size; rank++) {
        code = unspool_mpi_send(mpi, rank, MPI_Wtime() + 1, all, length);
    }
    code = code || unspool_mpi_take(mpi, all, length, gathered);
    free(all);
    return code;
}

/* `all_gather` of `unspool_ranks`. */
static int unspool_mpi_all_gather(void *context, const void *message, size_t bytes, double seconds,
                                  unspool_gathered *gathered) {
    const unspool_mpi *mpi = context;
    const double end = MPI_Wtime() + unspool_mpi_limit(mpi, seconds);
    char *all = NULL;
    int count = 0, code;
    if (mpi->ranks.rank == 0) {
        return unspool_mpi_lead(mpi, message, bytes, end, gathered);
    }
    code = unspool_mpi_send(mpi, 0, end, message, bytes) ||
           unspool_mpi_receive(mpi, 0, end, &all, &count);
    if (!code && all == NULL) {
        /* Rank 0 is missing; of the others nothing is known. */
        for (unsigned rank = 1; !code && rank < mpi->ranks.size; rank++) {
            code = unspool_gathered_set(gathered, rank, message, bytes);
        }
    } else if (!code) {
        code = unspool_mpi_take(mpi, all, (size_t)count, gathered);
    }
    free(all);
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
    return code;
}

/* Gives the communicator back, on all ranks. */
static inline int unspool_mpi_free(unspool_mpi *mpi) { return MPI_Comm_free(&mpi->comm); }

#endif /* UNSPOOL_MPI_H */
