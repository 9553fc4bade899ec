/* Message rates as the Sandia micro-benchmark has them: rate BYTES COUNT single|multi. Windows of
 * messages are sent by even ranks to odd ones, or between all ranks both ways. Prints messages a
 * second of all ranks, and the bytes a second that each rank has sent.
 */
#include "halo.h"

enum { WINDOW = 8 };

/* One window with each of the peers. */
static void window(char *memory, int bytes, int peers, const int *peer, int sends, int receives)
{
    MPI_Request *requests = room((size_t)(2 * WINDOW * peers) * sizeof *requests);
    int count = 0;
    for (int p = 0; p < peers; p++)
        for (int n = 0; n < WINDOW && receives; n++)
            MPI_Irecv(memory + (size_t)(1 + p * WINDOW + n) * (size_t)bytes, bytes, MPI_BYTE,
                      peer[p], 3, MPI_COMM_WORLD, &requests[count++]);
    for (int p = 0; p < peers; p++)
        for (int n = 0; n < WINDOW && sends; n++)
            MPI_Isend(memory, bytes, MPI_BYTE, peer[p], 3, MPI_COMM_WORLD, &requests[count++]);
    MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
    free(requests);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, size, bytes = argc == 4 ? atoi(argv[1]) : 0, rounds = argc == 4 ? atoi(argv[2]) : 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (bytes < 1 || rounds < 1 || size % 2)
        fail("usage: rate BYTES ROUNDS single|multi, on an even number of ranks");
    int is_multi = !strcmp(argv[3], "multi"), peers = is_multi ? size - 1 : 1;
    int *peer = room((size_t)size * sizeof *peer);
    for (int p = 0, other = 0; other < size; other++)
        if (is_multi ? other != rank : other == (rank ^ 1))
            peer[p++] = other;
    char *memory = room((size_t)(1 + peers * WINDOW) * (size_t)bytes);
    window(memory, bytes, peers, peer, is_multi || rank % 2 == 0, is_multi || rank % 2);
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    for (int round = 0; round < rounds; round++)
        window(memory, bytes, peers, peer, is_multi || rank % 2 == 0, is_multi || rank % 2);
    MPI_Barrier(MPI_COMM_WORLD);
    double seconds = MPI_Wtime() - begin;
    double senders = is_multi ? size : size / 2, each = (double)rounds * WINDOW * peers / seconds;
    if (rank == 0)
        printf("messages %.3f bytes %.1f\n", senders * each, each * bytes);
    free(peer);
    free(memory);
    MPI_Finalize();
    return 0;
}
