/* Calls on two ranks what `calls.c` does not: all calls of all ranks and of neighbours, in each of
 * their ways, every way to make a communicator, and the forms with large counts. */
#include "check.h"

#include <mpi.h>
#include <stdio.h>
#include <string.h>

enum { N = 3 };

/* Open MPI has prepared calls of all ranks from version 5 on, which calls itself 3.1. */
#if MPI_VERSION >= 4 || (defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION >= 5)
#define PREPARED
#endif

static int peer;
static MPI_Comm world = MPI_COMM_WORLD;

#define COUNT int
#define PLACE int
#define OF(name) MPI_##name
#define NAMED(name) name
#include "every.h"

#ifdef LARGE
#define COUNT MPI_Count
#define PLACE MPI_Aint
#define OF(name) MPI_##name##_c
#define NAMED(name) name##_large
#include "every.h"
#endif

static void barriers(void)
{
    MPI_Request request;
    MPI_Barrier(world);
    MPI_Ibarrier(world, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
#ifdef PREPARED
    MPI_Barrier_init(world, MPI_INFO_NULL, &request);
    MPI_Start(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Request_free(&request);
#endif
}

/* A message on a communicator of both ranks, or between two of one rank each, and then no more. */
static void used(MPI_Comm *comm, int tag)
{
    int own, inter, out = 100 * tag + rank, in = -1;
    MPI_Comm_rank(*comm, &own);
    MPI_Comm_test_inter(*comm, &inter);
    int other = inter ? 0 : 1 - own;
    MPI_Sendrecv(&out, 1, MPI_INT, other, tag, &in, 1, MPI_INT, other, tag, *comm,
                 MPI_STATUS_IGNORE);
    CHECK(in == 100 * tag + peer);
    if (tag % 2) {
        MPI_Comm_free(comm);
    } else {
        MPI_Comm_disconnect(comm);
    }
}

static void communicators(void)
{
    int lengths[] = {1, 2}, periodic[] = {1, 1}, kept[] = {0, 1}, ends[] = {1, 2}, edges[] = {1, 0};
    int one = 1;
    MPI_Comm made, whole, alone;
    MPI_Group group;
    MPI_Comm_group(world, &group);
    MPI_Comm_dup_with_info(world, MPI_INFO_NULL, &made);
    used(&made, 1);
    MPI_Comm_create(world, group, &made);
    used(&made, 2);
    MPI_Comm_create_group(world, group, 5, &made);
    used(&made, 3);
    MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &made);
    used(&made, 4);
    MPI_Cart_create(world, 2, lengths, periodic, 0, &whole);
    MPI_Cart_sub(whole, kept, &made);
    MPI_Comm_free(&whole);
    used(&made, 5);
    MPI_Graph_create(world, 2, ends, edges, 0, &made);
    used(&made, 6);
    MPI_Dist_graph_create(world, 1, &rank, &one, &peer, &one, MPI_INFO_NULL, 0, &made);
    used(&made, 7);
    MPI_Dist_graph_create_adjacent(world, 1, &peer, &one, 1, &peer, &one, MPI_INFO_NULL, 0, &made);
    used(&made, 8);
    MPI_Comm_split(world, rank, 0, &alone);
    MPI_Intercomm_create(alone, 0, world, peer, 6, &whole);
    MPI_Intercomm_merge(whole, rank, &made);
    used(&made, 9);
    used(&whole, 10);
    MPI_Comm_free(&alone);
#ifdef PREPARED
    MPI_Request request;
    MPI_Comm_idup_with_info(world, MPI_INFO_NULL, &made, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    used(&made, 11);
#endif
    MPI_Group_free(&group);
}

/* A message is there before it is received. */
static void looked_at(void)
{
    int out = rank, in = -1, flag = 0;
    MPI_Request request;
    MPI_Isend(&out, 1, MPI_INT, peer, 20, world, &request);
    while (!flag) {
        MPI_Iprobe(peer, 20, world, &flag, MPI_STATUS_IGNORE);
    }
    MPI_Recv(&in, 1, MPI_INT, peer, 20, world, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(in == peer);
#ifdef PREPARED
    in = rank;
    MPI_Isendrecv_replace(&in, 1, MPI_INT, peer, 21, peer, 21, world, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(in == peer);
#endif
#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
    int index, count, indices[1];
    MPI_Irecv(&in, 1, MPI_INT, peer, 22, world, &request);
    MPI_Send(&out, 1, MPI_INT, peer, 22, world);
    for (flag = 0; !flag;) {
        MPI_Request_get_status_all(1, &request, &flag, MPI_STATUSES_IGNORE);
    }
    MPI_Request_get_status_any(1, &request, &index, &flag, MPI_STATUS_IGNORE);
    MPI_Request_get_status_some(1, &request, &count, indices, MPI_STATUSES_IGNORE);
    CHECK(flag && index == 0 && count == 1 && indices[0] == 0);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
#endif
}

#ifdef LARGE
static int out, in;

static MPI_Request ready(int tag)
{
    MPI_Request request;
    out = 100 * tag + rank;
    MPI_Irecv_c(&in, 1, MPI_INT, peer, tag, world, &request);
    MPI_Barrier(world);
    return request;
}

static void arrived(MPI_Request *request, int tag)
{
    MPI_Wait(request, MPI_STATUS_IGNORE);
    CHECK(in == 100 * tag + peer);
    in = -1;
}

typedef int Send(const void *, MPI_Count, MPI_Datatype, int, int, MPI_Comm);
typedef int Begin(const void *, MPI_Count, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);

static void messages(void)
{
    Send *sends[] = {MPI_Send_c, MPI_Bsend_c, MPI_Ssend_c, MPI_Rsend_c};
    Begin *begins[] = {MPI_Isend_c, MPI_Ibsend_c, MPI_Issend_c, MPI_Irsend_c};
    Begin *inits[] = {MPI_Send_init_c, MPI_Bsend_init_c, MPI_Ssend_init_c, MPI_Rsend_init_c};
    MPI_Request request, send;
    for (int i = 0; i < 4; i++) {
        request = ready(30 + i);
        sends[i](&out, 1, MPI_INT, peer, 30 + i, world);
        arrived(&request, 30 + i);
        request = ready(34 + i);
        begins[i](&out, 1, MPI_INT, peer, 34 + i, world, &send);
        MPI_Wait(&send, MPI_STATUS_IGNORE);
        arrived(&request, 34 + i);
        inits[i](&out, 1, MPI_INT, peer, 38 + i, world, &send);
        MPI_Recv_init_c(&in, 1, MPI_INT, peer, 38 + i, world, &request);
        out = 100 * (38 + i) + rank;
        MPI_Start(&request);
        MPI_Barrier(world);
        MPI_Start(&send);
        MPI_Wait(&send, MPI_STATUS_IGNORE);
        arrived(&request, 38 + i);
        MPI_Request_free(&send);
        MPI_Request_free(&request);
    }
}

static void both_ways(void)
{
    MPI_Message message;
    MPI_Request request, send;
    out = in = 4200 + rank;
    MPI_Sendrecv_replace_c(&in, 1, MPI_INT, peer, 42, peer, 42, world, MPI_STATUS_IGNORE);
    CHECK(in == 4200 + peer);
    MPI_Isendrecv_c(&out, 1, MPI_INT, peer, 43, &in, 1, MPI_INT, peer, 43, world, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(in == 4200 + peer);
    in = 4400 + rank;
    MPI_Isendrecv_replace_c(&in, 1, MPI_INT, peer, 44, peer, 44, world, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(in == 4400 + peer);
    for (int turn = 0; turn < 3; turn++) {
        out = 4500 + rank;
        MPI_Isend(&out, 1, MPI_INT, peer, 45, world, &send);
        if (turn == 0) {
            MPI_Recv_c(&in, 1, MPI_INT, peer, 45, world, MPI_STATUS_IGNORE);
        } else {
            MPI_Mprobe(peer, 45, world, &message, MPI_STATUS_IGNORE);
            if (turn == 1) {
                MPI_Mrecv_c(&in, 1, MPI_INT, &message, MPI_STATUS_IGNORE);
            } else {
                MPI_Imrecv_c(&in, 1, MPI_INT, &message, &request);
                MPI_Wait(&request, MPI_STATUS_IGNORE);
            }
        }
        MPI_Wait(&send, MPI_STATUS_IGNORE);
        CHECK(in == 4500 + peer);
        in = -1;
    }
    MPI_Sendrecv_c(&out, 1, MPI_INT, peer, 46, &in, 1, MPI_INT, peer, 46, world, MPI_STATUS_IGNORE);
    CHECK(in == 4500 + peer);
}
#endif

int main(int argc, char **argv)
{
    int length = 2, periodic = 1;
    MPI_Comm ring;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(world, &rank);
    peer = 1 - rank;
    MPI_Cart_create(world, 1, &length, &periodic, 0, &ring);
    barriers();
    together();
    neighbours(ring);
    communicators();
    looked_at();
#ifdef LARGE
    static char room[1 << 16];
    void *back;
    int size;
    MPI_Buffer_attach(room, sizeof room);
    together_large();
    neighbours_large(ring);
    messages();
    both_ways();
    MPI_Buffer_detach(&back, &size);
#endif
    MPI_Comm_free(&ring);
    if (rank == 0) {
        printf("every: all right%s\n",
#ifdef PREPARED
               ", prepared");
#else
               "");
#endif
    }
    MPI_Finalize();
    return 0;
}
