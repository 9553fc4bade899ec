/* Several ranks send to all others, of all of them and of a half of them, and receive from any. A
 * rank prints a sum of what it got from each. */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 2000, ROUNDS = 12, TAGS = 3, MOST = 16 };

static unsigned long long sums[MOST];

static void add(int source, const void *bytes, size_t length)
{
    const unsigned char *all = bytes;
    for (size_t i = 0; i < length; i++) {
        sums[source] = (sums[source] ^ all[i]) * 1099511628211ull;
    }
}

/* Everybody sends to everybody else with each tag; messages come in any order of their senders. */
static void exchange(MPI_Comm comm, int step)
{
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    int count = (size - 1) * TAGS, place = 0;
    MPI_Request *requests = malloc(2 * count * sizeof *requests);
    MPI_Status *statuses = malloc(2 * count * sizeof *statuses);
    double *in = malloc(sizeof(double) * count * N), *out = malloc(sizeof(double) * TAGS * N);
    for (int i = 0; i < count; i++) {
        MPI_Irecv(in + i * N, N, MPI_DOUBLE, MPI_ANY_SOURCE, i % TAGS, comm, &requests[i]);
    }
    for (int tag = 0; tag < TAGS; tag++) {
        for (int i = 0; i < N; i++) {
            out[tag * N + i] = sin(0.01 * i + 0.002 * step + rank + 10 * tag);
        }
        for (int other = 0; other < size; other++) {
            if (other != rank) {
                MPI_Isend(out + tag * N, N - tag, MPI_DOUBLE, other, tag, comm,
                          &requests[count + place++]);
            }
        }
    }
    MPI_Waitall(2 * count, requests, statuses);
    /* The sum of a sender is of its tags in their order. */
    for (int tag = 0; tag < TAGS; tag++) {
        for (int i = tag; i < count; i += TAGS) {
            int got;
            MPI_Get_count(&statuses[i], MPI_DOUBLE, &got);
            if (got != N - tag || statuses[i].MPI_TAG != tag) {
                fprintf(stderr, "rank %d: %d values of tag %d\n", rank, got, statuses[i].MPI_TAG);
                MPI_Abort(MPI_COMM_WORLD, 3);
            }
            add(statuses[i].MPI_SOURCE, in + i * N, sizeof(double) * got);
        }
    }
    /* Without it, a message of the next exchange may be taken for one of this. */
    MPI_Barrier(comm);
    free(requests);
    free(statuses);
    free(in);
    free(out);
}

int main(int argc, char **argv)
{
    int rank;
    MPI_Comm half;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
    for (int step = 0; step < ROUNDS; step++) {
        exchange(MPI_COMM_WORLD, step);
        exchange(half, step);
    }
    for (int source = 0; source < MOST; source++) {
        if (sums[source] != 0) {
            printf("rank %d from %d: %016llx\n", rank, source, sums[source]);
        }
    }
    MPI_Comm_free(&half);
    MPI_Finalize();
    return 0;
}
