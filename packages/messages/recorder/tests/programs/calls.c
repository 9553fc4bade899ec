/* Calls every function that sends, on two ranks, and checks what arrives. Each way of sending has a
 * tag of its own, by which a test knows it again. */
#include "check.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 64, BIG = 8192 };

/* Open MPI from version 5 on has what is new in MPI 4 but large counts, and calls itself 3.1. */
#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
#define NEWER
#endif

static int peer;
static MPI_Comm world = MPI_COMM_WORLD;
static double out[N], in[N];

static void fill(double *values, int tag, int from)
{
    for (int i = 0; i < N; i++) {
        values[i] = 1000.0 * tag + 100.0 * from + i;
    }
}

static void check(int tag)
{
    double right[N];
    fill(right, tag, peer);
    CHECK(memcmp(right, in, sizeof in) == 0);
    memset(in, 0, sizeof in);
}

/* A receive that is there before any rank sends: what Rsend needs. */
static MPI_Request ready(int tag)
{
    MPI_Request request;
    fill(out, tag, rank);
    MPI_Irecv(in, N, MPI_DOUBLE, peer, tag, world, &request);
    MPI_Barrier(world);
    return request;
}

static void received(MPI_Request *request, int tag)
{
    MPI_Wait(request, MPI_STATUS_IGNORE);
    check(tag);
}

static void blocking(void)
{
    MPI_Request request = ready(1);
    MPI_Send(out, N, MPI_DOUBLE, peer, 1, world);
    received(&request, 1);
    request = ready(2);
    MPI_Bsend(out, N, MPI_DOUBLE, peer, 2, world);
    received(&request, 2);
    request = ready(3);
    MPI_Ssend(out, N, MPI_DOUBLE, peer, 3, world);
    received(&request, 3);
    request = ready(4);
    MPI_Rsend(out, N, MPI_DOUBLE, peer, 4, world);
    received(&request, 4);
    fill(out, 9, rank);
    MPI_Sendrecv(out, N, MPI_DOUBLE, peer, 9, in, N, MPI_DOUBLE, MPI_ANY_SOURCE, MPI_ANY_TAG, world,
                 MPI_STATUS_IGNORE);
    check(9);
    fill(in, 10, rank);
    MPI_Sendrecv_replace(in, N, MPI_DOUBLE, peer, 10, peer, 10, world, MPI_STATUS_IGNORE);
    check(10);
    MPI_Send(out, N, MPI_DOUBLE, MPI_PROC_NULL, 19, world);
}

static void nonblocking(void)
{
    int flag = 0, index, count, indices[2];
    MPI_Request send, request = ready(5);
    MPI_Isend(out, N, MPI_DOUBLE, peer, 5, world, &send);
    while (!flag) {
        MPI_Test(&send, &flag, MPI_STATUS_IGNORE);
    }
    received(&request, 5);
    request = ready(6);
    MPI_Ibsend(out, N, MPI_DOUBLE, peer, 6, world, &send);
    MPI_Waitall(1, &send, MPI_STATUSES_IGNORE);
    MPI_Waitany(1, &request, &index, MPI_STATUS_IGNORE);
    CHECK(index == 0);
    check(6);
    request = ready(7);
    MPI_Issend(out, N, MPI_DOUBLE, peer, 7, world, &send);
    MPI_Waitsome(1, &request, &count, indices, MPI_STATUSES_IGNORE);
    CHECK(count == 1 && indices[0] == 0);
    MPI_Wait(&send, MPI_STATUS_IGNORE);
    check(7);
    request = ready(8);
    MPI_Irsend(out, N, MPI_DOUBLE, peer, 8, world, &send);
    for (flag = 0; !flag;) {
        MPI_Testany(1, &request, &index, &flag, MPI_STATUS_IGNORE);
    }
    for (count = 0; count < 1;) {
        MPI_Testsome(1, &send, &count, indices, MPI_STATUSES_IGNORE);
    }
    for (flag = 0; !flag;) {
        MPI_Testall(1, &send, &flag, MPI_STATUSES_IGNORE);
    }
    check(8);
}

typedef int Init(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);

static void persistent(Init *init, int tag)
{
    MPI_Request both[2];
    MPI_Recv_init(in, N, MPI_DOUBLE, peer, tag, world, &both[0]);
    init(out, N, MPI_DOUBLE, peer, tag, world, &both[1]);
    for (int turn = 0; turn < 3; turn++) {
        fill(out, tag, rank);
        if (turn == 1) {
            MPI_Startall(2, both);
        } else {
            MPI_Start(&both[0]);
            MPI_Barrier(world);
            MPI_Start(&both[1]);
        }
        MPI_Waitall(2, both, MPI_STATUSES_IGNORE);
        check(tag);
    }
    MPI_Request_free(&both[0]);
    MPI_Request_free(&both[1]);
}

static void probes(void)
{
    MPI_Message message;
    MPI_Request send, request;
    int flag = 0;
    fill(out, 15, rank);
    MPI_Isend(out, N, MPI_DOUBLE, peer, 15, world, &send);
    MPI_Mprobe(peer, 15, world, &message, MPI_STATUS_IGNORE);
    MPI_Mrecv(in, N, MPI_DOUBLE, &message, MPI_STATUS_IGNORE);
    MPI_Wait(&send, MPI_STATUS_IGNORE);
    check(15);
    MPI_Isend(out, N, MPI_DOUBLE, peer, 15, world, &send);
    while (!flag) {
        MPI_Improbe(MPI_ANY_SOURCE, 15, world, &flag, &message, MPI_STATUS_IGNORE);
    }
    MPI_Imrecv(in, N, MPI_DOUBLE, &message, &request);
    received(&request, 15);
    MPI_Wait(&send, MPI_STATUS_IGNORE);
    MPI_Isend(out, N, MPI_DOUBLE, peer, 15, world, &send);
    MPI_Probe(peer, 15, world, MPI_STATUS_IGNORE);
    MPI_Recv(in, N, MPI_DOUBLE, peer, 15, world, MPI_STATUS_IGNORE);
    MPI_Wait(&send, MPI_STATUS_IGNORE);
    check(15);
}

/* Every second value, pairs of several types, and an absolute address. */
static void datatypes(void)
{
    static double matrix[2 * BIG], column[BIG];
    MPI_Datatype every, pair, absolute;
    MPI_Request request;
    for (int i = 0; i < 2 * BIG; i++) {
        matrix[i] = i % 2 ? -1.0 : 0.25 * i;
    }
    MPI_Type_vector(BIG, 1, 2, MPI_DOUBLE, &every);
    MPI_Type_commit(&every);
    MPI_Irecv(column, BIG, MPI_DOUBLE, peer, 16, world, &request);
    MPI_Send(matrix, 1, every, peer, 16, world);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(column[0] == 0.0 && column[BIG - 1] == 0.25 * 2 * (BIG - 1));
    MPI_Type_free(&every);

    struct { double real; int whole[2]; } pairs[N], got[N];
    int lengths[2] = {1, 2};
    MPI_Aint places[2] = {0, sizeof(double)};
    MPI_Datatype types[2] = {MPI_DOUBLE, MPI_INT};
    memset(pairs, 1, sizeof pairs);
    MPI_Type_create_struct(2, lengths, places, types, &pair);
    MPI_Type_commit(&pair);
    MPI_Sendrecv(pairs, N, pair, peer, 21, got, N, pair, peer, 21, world, MPI_STATUS_IGNORE);
    CHECK(memcmp(pairs, got, sizeof got) == 0);
    MPI_Type_free(&pair);

    MPI_Aint address;
    int length = N;
    fill(out, 22, rank);
    MPI_Get_address(out, &address);
    MPI_Type_create_hindexed(1, &length, &address, MPI_DOUBLE, &absolute);
    MPI_Type_commit(&absolute);
    MPI_Sendrecv(MPI_BOTTOM, 1, absolute, peer, 22, in, N, MPI_DOUBLE, peer, 22, world,
                 MPI_STATUS_IGNORE);
    check(22);
    MPI_Type_free(&absolute);
}

static void payloads(void)
{
    static char zeros[1 << 16], got[1 << 16];
    fill(out, 17, rank);
    for (int turn = 0; turn < 10; turn++) {
        MPI_Sendrecv(out, N, MPI_DOUBLE, peer, 17, in, N, MPI_DOUBLE, peer, 17, world,
                     MPI_STATUS_IGNORE);
        check(17);
    }
    for (int turn = 0; turn < 24; turn++) {
        memset(zeros, turn, sizeof zeros);
        MPI_Sendrecv(zeros, sizeof zeros, MPI_BYTE, peer, 18, got, sizeof got, MPI_BYTE, peer, 18,
                     world, MPI_STATUS_IGNORE);
        CHECK(memcmp(zeros, got, sizeof got) == 0);
    }
    MPI_Sendrecv(NULL, 0, MPI_INT, peer, 20, NULL, 0, MPI_INT, peer, 20, world, MPI_STATUS_IGNORE);
}

static void communicators(void)
{
    MPI_Comm copy, turned, none, later;
    MPI_Request request;
    MPI_Comm_dup(world, &copy);
    MPI_Comm_set_name(copy, "halo");
    fill(out, 40, rank);
    MPI_Sendrecv(out, N, MPI_DOUBLE, peer, 40, in, N, MPI_DOUBLE, peer, 40, copy,
                 MPI_STATUS_IGNORE);
    check(40);
    MPI_Comm_split(copy, 0, -rank, &turned);
    fill(out, 41, rank);
    /* Rank 0 of the world is 1 here. */
    MPI_Sendrecv(out, N, MPI_DOUBLE, rank, 41, in, N, MPI_DOUBLE, rank, 41, turned,
                 MPI_STATUS_IGNORE);
    check(41);
    MPI_Comm_split(world, rank == 0 ? MPI_UNDEFINED : 1, 0, &none);
    CHECK((none == MPI_COMM_NULL) == (rank == 0));
    MPI_Comm_idup(turned, &later, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    fill(out, 42, rank);
    MPI_Sendrecv(out, N, MPI_DOUBLE, rank, 42, in, N, MPI_DOUBLE, rank, 42, later,
                 MPI_STATUS_IGNORE);
    check(42);
    if (none != MPI_COMM_NULL) {
        MPI_Comm_free(&none);
    }
    MPI_Comm_free(&later);
    MPI_Comm_free(&turned);
    MPI_Comm_free(&copy);
}

static void collectives(void)
{
    int own[4] = {rank, 1, 2, 3}, all[8], counts[2] = {1, 2}, places[2] = {0, 2};
    int ones[2] = {1, 1};
    MPI_Request request;
    MPI_Bcast(own, 4, MPI_INT, 1, world);
    CHECK(own[0] == 1);
    own[0] = rank;
    MPI_Ibcast(own, 4, MPI_INT, 0, world, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    own[0] = rank;
    MPI_Gather(own, 4, MPI_INT, all, 4, MPI_INT, 0, world);
    MPI_Scatter(all, 4, MPI_INT, own, 4, MPI_INT, 0, world);
    CHECK(own[0] == rank);
    MPI_Scatterv(all, counts, places, MPI_INT, own, counts[rank], MPI_INT, 0, world);
    own[0] = rank;
    MPI_Allgather(own, 4, MPI_INT, all, 4, MPI_INT, world);
    CHECK(all[0] == 0 && all[4] == 1);
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, 4, MPI_INT, world);
    MPI_Alltoall(own, 2, MPI_INT, all, 2, MPI_INT, world);
    MPI_Alltoallv(own, ones, places, MPI_INT, all, ones, places, MPI_INT, world);
    MPI_Reduce(own, all, 4, MPI_INT, MPI_SUM, 1, world);
    MPI_Allreduce(own, all, 4, MPI_INT, MPI_SUM, world);
    CHECK(all[0] == 1);
    MPI_Allreduce(MPI_IN_PLACE, all, 4, MPI_INT, MPI_SUM, world);
    MPI_Reduce_scatter(own, all, ones, MPI_INT, MPI_SUM, world);
    MPI_Reduce_scatter_block(own, all, 2, MPI_INT, MPI_SUM, world);
    MPI_Scan(own, all, 4, MPI_INT, MPI_SUM, world);
    MPI_Exscan(own, all, 4, MPI_INT, MPI_SUM, world);
}

static void neighbours(void)
{
    int length = 2, periodic = 1, open = 0, own[2] = {rank, rank}, all[2];
    MPI_Comm ring, line;
    MPI_Cart_create(world, 1, &length, &periodic, 0, &ring);
    MPI_Neighbor_allgather(own, 1, MPI_INT, all, 1, MPI_INT, ring);
    CHECK(all[0] == peer && all[1] == peer);
    MPI_Neighbor_alltoall(own, 1, MPI_INT, all, 1, MPI_INT, ring);
    MPI_Cart_create(world, 1, &length, &open, 0, &line);
    MPI_Neighbor_alltoall(own, 1, MPI_INT, all, 1, MPI_INT, line);
    MPI_Comm_free(&line);
    MPI_Comm_free(&ring);
}

#ifdef NEWER
static void newer(void)
{
    MPI_Request request, send;
    request = ready(33);
    MPI_Isendrecv(out, N, MPI_DOUBLE, peer, 34, in, 0, MPI_DOUBLE, peer, 34, world, &send);
    MPI_Send(out, N, MPI_DOUBLE, peer, 33, world);
    MPI_Wait(&send, MPI_STATUS_IGNORE);
    received(&request, 33);
    MPI_Psend_init(out, 4, N / 4, MPI_DOUBLE, peer, 36, world, MPI_INFO_NULL, &send);
    MPI_Precv_init(in, 4, N / 4, MPI_DOUBLE, peer, 36, world, MPI_INFO_NULL, &request);
    for (int turn = 0; turn < 2; turn++) {
        int list[1] = {3};
        MPI_Start(&request);
        MPI_Start(&send);
        fill(out, 36, rank);
        MPI_Pready(2, send);
        MPI_Pready_list(1, list, send);
        MPI_Pready_range(0, 1, send);
        MPI_Wait(&send, MPI_STATUS_IGNORE);
        received(&request, 36);
    }
    MPI_Request_free(&send);
    MPI_Request_free(&request);
    int one = 1, all;
    MPI_Allreduce_init(&one, &all, 1, MPI_INT, MPI_SUM, world, MPI_INFO_NULL, &request);
    for (int turn = 0; turn < 2; turn++) {
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(all == 2);
    }
    MPI_Request_free(&request);
}
#endif

#ifdef LARGE
static void large(void)
{
    MPI_Request request = ready(31);
    MPI_Send_c(out, N, MPI_DOUBLE, peer, 31, world);
    received(&request, 31);
    MPI_Request send;
    request = ready(32);
    MPI_Isend_c(out, N, MPI_DOUBLE, peer, 32, world, &send);
    MPI_Wait(&send, MPI_STATUS_IGNORE);
    received(&request, 32);
    int one = 1, all;
    MPI_Allreduce_c(&one, &all, 1, MPI_INT, MPI_SUM, world);
}
#endif

int main(int argc, char **argv)
{
    static char room[1 << 16];
    void *back;
    int size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(world, &rank);
    MPI_Comm_size(world, &size);
    CHECK(size == 2);
    peer = 1 - rank;
    MPI_Buffer_attach(room, sizeof room);
    blocking();
    nonblocking();
    persistent(MPI_Send_init, 11);
    persistent(MPI_Bsend_init, 12);
    persistent(MPI_Ssend_init, 13);
    persistent(MPI_Rsend_init, 14);
    probes();
    datatypes();
    payloads();
    communicators();
    collectives();
    neighbours();
#ifdef NEWER
    newer();
#endif
#ifdef LARGE
    large();
#endif
    MPI_Buffer_detach(&back, &size);
    if (rank == 0) {
        printf("calls: all right\n");
    }
    MPI_Finalize();
    return 0;
}
