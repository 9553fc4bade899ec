/* Calls of all ranks and of all neighbours with counts of one width, blocking, nonblocking and
 * prepared. `every.c` includes this for each width: COUNT and PLACE are the types of counts and
 * displacements, and OF(name) is the function of a name. */

#ifdef PREPARED
#define PREPARE(name, good, ...)                                                                   \
    do {                                                                                           \
        memset(all, 0, sizeof all);                                                                \
        OF(name##_init)(__VA_ARGS__, MPI_INFO_NULL, &request);                                     \
        MPI_Start(&request);                                                                       \
        MPI_Wait(&request, MPI_STATUS_IGNORE);                                                     \
        CHECK(good);                                                                               \
        MPI_Request_free(&request);                                                                \
    } while (0)
#else
#define PREPARE(name, good, ...)                                                                   \
    do {                                                                                           \
    } while (0)
#endif

/* `good` is looked at after each of the three calls. */
#define WAYS(name, later, good, ...)                                                               \
    do {                                                                                           \
        memset(all, 0, sizeof all);                                                                \
        OF(name)(__VA_ARGS__);                                                                     \
        CHECK(good);                                                                               \
        memset(all, 0, sizeof all);                                                                \
        OF(later)(__VA_ARGS__, &request);                                                          \
        MPI_Wait(&request, MPI_STATUS_IGNORE);                                                     \
        CHECK(good);                                                                               \
        PREPARE(name, good, __VA_ARGS__);                                                          \
    } while (0)

static void NAMED(together)(void)
{
    /* Rank 0 gives one value where counts differ, and rank 1 two. */
    int own[2 * N], all[2 * N];
    COUNT counts[] = {1, 2}, given[] = {1 + rank, 1 + rank};
    PLACE places[] = {0, 1}, bytes[] = {0, sizeof(int)}, starts[] = {0, 0};
    MPI_Datatype types[] = {MPI_INT, MPI_INT};
    MPI_Request request;
    for (int i = 0; i < 2 * N; i++) {
        own[i] = 10 * rank + i;
    }
    WAYS(Bcast, Ibcast, rank == 0 || all[1] == 1, rank == 0 ? own : all, N, MPI_INT, 0, world);
    WAYS(Gather, Igather, rank == 1 || all[N] == 10, own, N, MPI_INT, all, N, MPI_INT, 0, world);
    WAYS(Gatherv, Igatherv, rank == 1 || (all[0] == 0 && all[1] == 10 && all[2] == 11), own,
         counts[rank], MPI_INT, all, counts, places, MPI_INT, 0, world);
    WAYS(Scatter, Iscatter, all[0] == N * rank, own, N, MPI_INT, all, N, MPI_INT, 0, world);
    WAYS(Scatterv, Iscatterv, all[0] == rank, own, counts, places, MPI_INT, all, counts[rank],
         MPI_INT, 0, world);
    WAYS(Allgather, Iallgather, all[N] == 10, own, N, MPI_INT, all, N, MPI_INT, world);
    WAYS(Allgatherv, Iallgatherv, all[1] == 10 && all[2] == 11, own, counts[rank], MPI_INT, all,
         counts, places, MPI_INT, world);
    WAYS(Alltoall, Ialltoall, all[N] == 10 + N * rank, own, N, MPI_INT, all, N, MPI_INT, world);
    WAYS(Alltoallv, Ialltoallv, all[1] == 10 && all[2] == 11, own, given, starts, MPI_INT, all,
         counts, places, MPI_INT, world);
    WAYS(Alltoallw, Ialltoallw, all[1] == 10 && all[2] == 11, own, given, starts, types, all,
         counts, bytes, types, world);
    WAYS(Reduce, Ireduce, rank == 0 || all[1] == 12, own, all, N, MPI_INT, MPI_SUM, 1, world);
    WAYS(Allreduce, Iallreduce, all[1] == 12, own, all, N, MPI_INT, MPI_SUM, world);
    WAYS(Reduce_scatter, Ireduce_scatter, all[0] == 10 + 2 * rank, own, all, counts, MPI_INT,
         MPI_SUM, world);
    WAYS(Reduce_scatter_block, Ireduce_scatter_block, all[0] == 10 + 2 * N * rank, own, all, N,
         MPI_INT, MPI_SUM, world);
    WAYS(Scan, Iscan, all[1] == 1 + 11 * rank, own, all, N, MPI_INT, MPI_SUM, world);
    WAYS(Exscan, Iexscan, rank == 0 || all[1] == 1, own, all, N, MPI_INT, MPI_SUM, world);
}

/* On a ring of two, the other rank is both neighbours. */
static void NAMED(neighbours)(MPI_Comm ring)
{
    int own[2 * N], all[2 * N], there = 1 + peer;
    COUNT given[] = {1 + rank, 1 + rank}, counts[] = {there, there};
    PLACE places[] = {0, there}, starts[] = {0, 0};
    MPI_Aint bytes[] = {0, there * (int)sizeof(int)}, zeros[] = {0, 0};
    MPI_Datatype types[] = {MPI_INT, MPI_INT};
    MPI_Request request;
    for (int i = 0; i < 2 * N; i++) {
        own[i] = 10 * rank + i % N;
    }
    WAYS(Neighbor_allgather, Ineighbor_allgather, all[0] == 10 * peer && all[N] == 10 * peer, own,
         N, MPI_INT, all, N, MPI_INT, ring);
    WAYS(Neighbor_allgatherv, Ineighbor_allgatherv, all[0] == 10 * peer && all[there] == 10 * peer,
         own, given[0], MPI_INT, all, counts, places, MPI_INT, ring);
    WAYS(Neighbor_alltoall, Ineighbor_alltoall, all[0] == 10 * peer && all[N] == 10 * peer, own, N,
         MPI_INT, all, N, MPI_INT, ring);
    WAYS(Neighbor_alltoallv, Ineighbor_alltoallv, all[0] == 10 * peer && all[there] == 10 * peer,
         own, given, starts, MPI_INT, all, counts, places, MPI_INT, ring);
    WAYS(Neighbor_alltoallw, Ineighbor_alltoallw, all[0] == 10 * peer && all[there] == 10 * peer,
         own, given, zeros, types, all, counts, bytes, types, ring);
}

#undef PREPARE
#undef WAYS
#undef COUNT
#undef PLACE
#undef OF
#undef NAMED
