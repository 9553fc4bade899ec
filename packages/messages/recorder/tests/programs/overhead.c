/* What the listener adds to a message, against the same calls past it (PMPI), in one run of one
 * rank that sends to itself: nanoseconds for an Irecv, an Isend and a Waitall, the median of many
 * rounds, with new bytes in every message. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 41, TURNS = 400 };

static unsigned char out[1 << 20], in[1 << 20];

typedef int Receive(void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
typedef int Send(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
typedef int Wait(int, MPI_Request *, MPI_Status *);

static double once(Receive *receive, Send *send, Wait *wait, int bytes)
{
    static unsigned number;
    MPI_Request both[2];
    double begun = MPI_Wtime();
    for (int turn = 0; turn < TURNS; turn++) {
        *(unsigned *)out = number++;
        receive(in, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &both[0]);
        send(out, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &both[1]);
        wait(2, both, MPI_STATUSES_IGNORE);
    }
    return (MPI_Wtime() - begun) / TURNS * 1e9;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    for (unsigned i = 0; i < sizeof out; i++) {
        out[i] = (unsigned char)rand();
    }
    printf("%10s %12s %12s %12s\n", "bytes", "MPI ns", "recorded ns", "added ns");
    for (int bytes = 8; bytes <= (1 << 20); bytes *= 8) {
        double plain[ROUNDS], heard[ROUNDS];
        for (int round = 0; round < ROUNDS; round++) {
            plain[round] = once(PMPI_Irecv, PMPI_Isend, PMPI_Waitall, bytes);
            heard[round] = once(MPI_Irecv, MPI_Isend, MPI_Waitall, bytes);
        }
        qsort(plain, ROUNDS, sizeof(double), by_size);
        qsort(heard, ROUNDS, sizeof(double), by_size);
        double a = plain[ROUNDS / 2], b = heard[ROUNDS / 2];
        printf("%10d %12.0f %12.0f %12.0f\n", bytes, a, b, b - a);
    }
    MPI_Finalize();
    return 0;
}
