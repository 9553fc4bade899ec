/* Two ranks exchange messages in every way that is coded, look at what they got, and print a sum of
 * it: the same with coding and without. With an argument they do one thing more that is not coded,
 * or goes wrong. */
#include <mpi.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N = 2500, SIDE = 50, LONG = 1 << 15, ROUNDS = 8, THREADS = 3 };

static int rank, other;
static MPI_Comm world = MPI_COMM_WORLD;
static unsigned long long sum = 14695981039346656037ull;
static double out[4][N], in[4][2 * N];

static void add(const void *bytes, size_t length)
{
    const unsigned char *all = bytes;
    for (size_t i = 0; i < length; i++) {
        sum = (sum ^ all[i]) * 1099511628211ull;
    }
}

static void fill(double *to, int n, int from, int step)
{
    for (int i = 0; i < n; i++) {
        to[i] = sin(0.01 * i + 0.002 * step + from);
    }
}

static void must(int good, const char *what, int line)
{
    if (!good) {
        fprintf(stderr, "rank %d: wrong in line %d: %s\n", rank, line, what);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
}

#define MUST(what) must((what), #what, __LINE__)

/* What has arrived is what the other rank has filled, and the status says so. */
static void check(const double *got, int n, int step, const MPI_Status *status, int tag)
{
    int count, elements;
    MPI_Get_count(status, MPI_DOUBLE, &count);
    MPI_Get_elements(status, MPI_DOUBLE, &elements);
    MUST(count == n && elements == n);
    MUST(status->MPI_SOURCE == other && status->MPI_TAG == tag);
    double *right = malloc(sizeof(double) * (n + 1));
    fill(right, n, other, step);
    MUST(memcmp(right, got, sizeof(double) * n) == 0);
    free(right);
    add(got, sizeof(double) * n);
}

static void blocking(int step)
{
    MPI_Status status;
    fill(out[0], N, rank, step);
    for (int first = 0; first < 2; first++) {
        if (rank == first) {
            MPI_Send(out[0], N, MPI_DOUBLE, other, 1, world);
        } else {
            MPI_Recv(in[0], 2 * N, MPI_DOUBLE, other, 1, world, &status);
            check(in[0], N, step, &status, 1);
        }
        if (rank == first) {
            MPI_Ssend(out[0], N, MPI_DOUBLE, other, 2, world);
        } else {
            MPI_Recv(in[0], N, MPI_DOUBLE, MPI_ANY_SOURCE, MPI_ANY_TAG, world, &status);
            check(in[0], N, step, &status, 2);
        }
    }
    MPI_Send(out[0], N, MPI_DOUBLE, MPI_PROC_NULL, 1, world);
    MPI_Recv(in[0], N, MPI_DOUBLE, MPI_PROC_NULL, 1, world, &status);
    MUST(status.MPI_SOURCE == MPI_PROC_NULL);
    MPI_Sendrecv(out[0], N, MPI_DOUBLE, other, 3, in[0], 2 * N, MPI_DOUBLE, other, 3, world,
                 &status);
    check(in[0], N, step, &status, 3);
    MPI_Sendrecv_replace(out[0], N, MPI_DOUBLE, other, 3, MPI_ANY_SOURCE, 3, world, &status);
    check(out[0], N, step, &status, 3);
}

/* Several messages of one channel, which are waited for in another order than they were sent. */
static void backwards(int step)
{
    MPI_Request requests[8];
    MPI_Status status, all[8];
    for (int i = 0; i < 4; i++) {
        int source = i % 2 ? other : MPI_ANY_SOURCE;
        MPI_Irecv(in[i], 2 * N, MPI_DOUBLE, source, 4, world, &requests[i]);
    }
    for (int i = 0; i < 4; i++) {
        fill(out[i], N, rank, 4 * step + i);
        if (i == 2) {
            MPI_Issend(out[i], N, MPI_DOUBLE, other, 4, world, &requests[4 + i]);
        } else {
            MPI_Isend(out[i], N, MPI_DOUBLE, other, 4, world, &requests[4 + i]);
        }
    }
    if (step % 3 == 0) {
        for (int i = 3; i >= 0; i--) {
            MPI_Wait(&requests[i], &status);
            check(in[i], N, 4 * step + i, &status, 4);
        }
        MPI_Waitall(4, requests + 4, MPI_STATUSES_IGNORE);
    } else if (step % 3 == 1) {
        MPI_Waitall(8, requests, all);
        for (int i = 0; i < 4; i++) {
            check(in[i], N, 4 * step + i, &all[i], 4);
        }
    } else {
        MPI_Waitall(8, requests, MPI_STATUSES_IGNORE);
        for (int i = 0; i < 4; i++) {
            add(in[i], sizeof(double) * N);
        }
    }
}

static void waits(int step)
{
    MPI_Request requests[8];
    MPI_Status status, some[8];
    int left = 4, flag = 0, index, count, indices[8];
    for (int i = 0; i < 4; i++) {
        MPI_Irecv(in[i], N, MPI_DOUBLE, other, 10 + i, world, &requests[i]);
    }
    for (int i = 0; i < 4; i++) {
        fill(out[i], N - i, rank, step + i);
        MPI_Isend(out[i], N - i, MPI_DOUBLE, other, 10 + i, world, &requests[4 + i]);
    }
    /* Sums are added in the order of the channels, not in that of arrival. */
    switch (step % 6) {
    case 0:
        for (; left > 0; left--) {
            MPI_Waitany(4, requests, &index, &status);
            MUST(index >= 0 && index < 4 && status.MPI_TAG == 10 + index);
        }
        break;
    case 1:
        for (; left > 0; left -= count) {
            MPI_Waitsome(4, requests, &count, indices, some);
            for (int i = 0; i < count; i++) {
                int bytes;
                MPI_Get_count(&some[i], MPI_BYTE, &bytes);
                MUST(bytes == 8 * (N - indices[i]) && some[i].MPI_TAG == 10 + indices[i]);
            }
        }
        break;
    case 2:
        while (!flag) {
            MPI_Testall(4, requests, &flag, some);
        }
        for (int i = 0; i < 4; i++) {
            MUST(some[i].MPI_TAG == 10 + i);
        }
        break;
    case 3:
        while (left > 0) {
            MPI_Testany(4, requests, &index, &flag, &status);
            left -= flag;
        }
        break;
    case 4:
        while (left > 0) {
            MPI_Testsome(4, requests, &count, indices, MPI_STATUSES_IGNORE);
            left -= count;
        }
        break;
    default:
        for (int i = 0; i < 4; i++) {
            for (flag = 0; !flag;) {
                MPI_Request_get_status(requests[i], &flag, &status);
            }
            check(in[i], N - i, step + i, &status, 10 + i);
            MUST(requests[i] != MPI_REQUEST_NULL);
            for (flag = 0; !flag;) {
                MPI_Test(&requests[i], &flag, &status);
            }
            check(in[i], N - i, step + i, &status, 10 + i);
        }
    }
    for (int i = 0; i < 4; i++) {
        MUST(requests[i] == MPI_REQUEST_NULL);
        add(in[i], sizeof(double) * (N - i));
    }
    MPI_Waitall(4, requests + 4, MPI_STATUSES_IGNORE);
}

/* Small and large ones, noise, and values with gaps, of one channel. */
static void mixed(int step)
{
    static const int sizes[] = {N, 0, 1, 100, N / 2, N};
    MPI_Status status;
    for (int i = 0; i < 6; i++) {
        fill(out[0], sizes[i], rank, step);
        MPI_Sendrecv(out[0], sizes[i], MPI_DOUBLE, other, 5, in[0], N, MPI_DOUBLE, other, 5, world,
                     &status);
        check(in[0], sizes[i], step, &status, 5);
    }
    int *noise = malloc(4 * N), *heard = malloc(4 * N), count;
    srand(step % 4 == 0 ? 1 : 100 * step + rank);
    for (int i = 0; i < N; i++) {
        noise[i] = rand();
    }
    MPI_Sendrecv(noise, N, MPI_INT, other, 6, heard, N, MPI_INT, MPI_ANY_SOURCE, 6, world, &status);
    MPI_Get_count(&status, MPI_INT, &count);
    MUST(count == N);
    add(heard, 4 * N);
    free(noise);
    free(heard);

    MPI_Datatype column;
    MPI_Type_vector(N / 2, 1, 2, MPI_DOUBLE, &column);
    MPI_Type_commit(&column);
    fill(out[0], N, rank, step);
    memset(in[0], 0, sizeof in[0]);
    MPI_Sendrecv(out[0], 1, column, other, 7, in[0], N, MPI_DOUBLE, other, 7, world, &status);
    MPI_Get_count(&status, MPI_DOUBLE, &count);
    MUST(count == N / 2);
    add(in[0], sizeof(double) * N);
    memset(in[0], 0, sizeof in[0]);
    MPI_Sendrecv(out[0], N / 2, MPI_DOUBLE, other, 7, in[0], 1, column, other, 7, world, &status);
    MPI_Get_count(&status, column, &count);
    MUST(count == 1);
    add(in[0], sizeof(double) * N);
    /* A datatype that is given up before its message is here. */
    MPI_Request request;
    memset(in[0], 0, sizeof in[0]);
    MPI_Irecv(in[0], 1, column, other, 7, world, &request);
    MPI_Type_free(&column);
    MPI_Type_vector(N / 4, 1, 3, MPI_DOUBLE, &column);
    MPI_Type_commit(&column);
    MPI_Send(out[0], N / 2, MPI_DOUBLE, other, 7, world);
    MPI_Wait(&request, &status);
    for (int i = 0; i < N / 2; i++) {
        MUST(in[0][2 * i] == sin(0.01 * i + 0.002 * step + other) && in[0][2 * i + 1] == 0);
    }
    add(in[0], sizeof(double) * N);
    MPI_Type_free(&column);
}

/* A matrix that is sent, and received, by columns: its values have no gaps and another order. */
static void transposed(int step)
{
    MPI_Datatype column, columns;
    MPI_Type_vector(SIDE, 1, SIDE, MPI_DOUBLE, &column);
    MPI_Type_create_hvector(SIDE, 1, sizeof(double), column, &columns);
    MPI_Type_commit(&columns);
    for (int i = 0; i < N; i++) {
        out[0][i] = i + 3 * step + rank;
    }
    for (int received = 0; received < 2; received++) {
        MPI_Sendrecv(out[0], received ? N : 1, received ? MPI_DOUBLE : columns, other, 50, in[0],
                     received ? 1 : N, received ? columns : MPI_DOUBLE, other, 50, world,
                     MPI_STATUS_IGNORE);
        for (int i = 0; i < N; i++) {
            MUST(in[0][i] == i % SIDE * SIDE + i / SIDE + 3 * step + other);
        }
        add(in[0], sizeof(double) * N);
    }
    MPI_Type_free(&column);
    MPI_Type_free(&columns);
}

#ifdef LARGE
/* Counts of 64 bits on both sides of a message, and on one of them. */
static void large(int step)
{
    MPI_Status status;
    fill(out[0], N, rank, step);
    MPI_Request request;
    for (int which = 0; which < 3; which++) {
        if (which < 2) {
            MPI_Irecv_c(in[0], 2 * N, MPI_DOUBLE, other, 8, world, &request);
        } else {
            MPI_Irecv(in[0], 2 * N, MPI_DOUBLE, other, 8, world, &request);
        }
        if (which == 1) {
            MPI_Send(out[0], N, MPI_DOUBLE, other, 8, world);
        } else {
            MPI_Send_c(out[0], N, MPI_DOUBLE, other, 8, world);
        }
        MPI_Wait(&request, &status);
        check(in[0], N, step, &status, 8);
    }
    /* One half of a call is coded. The other has a count of more than 32 bits, of nothing. */
    const MPI_Count many = 3000000000;
    MPI_Datatype nothing;
    MPI_Type_contiguous(0, MPI_DOUBLE, &nothing);
    MPI_Type_commit(&nothing);
    if (rank == 0) {
        MPI_Sendrecv_c(out[0], N, MPI_DOUBLE, other, 8, in[0], many, nothing, other, 9, world,
                       &status);
        MPI_Sendrecv_c(out[0], many, nothing, other, 9, in[0], N, MPI_DOUBLE, other, 8, world,
                       &status);
        check(in[0], N, step, &status, 8);
    } else {
        MPI_Sendrecv_c(out[0], many, nothing, other, 9, in[0], N, MPI_DOUBLE, other, 8, world,
                       &status);
        check(in[0], N, step, &status, 8);
        MPI_Sendrecv_c(out[0], N, MPI_DOUBLE, other, 8, in[0], many, nothing, other, 9, world,
                       &status);
    }
    MPI_Type_free(&nothing);
}
#endif

static void *turn(void *argument)
{
    int tag = 30 + *(int *)argument;
    double *mine = malloc(sizeof(double) * N), *got = malloc(sizeof(double) * N);
    for (int step = 0; step < ROUNDS; step++) {
        MPI_Request request;
        MPI_Status status;
        /* One channel for each thread, and one that all share: whoever gets a message has one. */
        fill(mine, N, rank, step);
        MPI_Irecv(got, N, MPI_DOUBLE, other, tag, MPI_COMM_WORLD, &request);
        MPI_Send(mine, N, MPI_DOUBLE, other, tag, MPI_COMM_WORLD);
        MPI_Wait(&request, &status);
        double right = sin(0.01 * 77 + 0.002 * step + other);
        MUST(got[77] == right);
        MPI_Irecv(got, N, MPI_DOUBLE, MPI_ANY_SOURCE, 39, MPI_COMM_WORLD, &request);
        MPI_Send(mine, N, MPI_DOUBLE, other, 39, MPI_COMM_WORLD);
        MPI_Wait(&request, &status);
        int known = 0;
        for (int s = 0; s < ROUNDS; s++) {
            fill(mine, N, other, s);
            known |= memcmp(got, mine, sizeof(double) * N) == 0;
        }
        MUST(known);
    }
    free(mine);
    free(got);
    return NULL;
}

static void threads(void)
{
    pthread_t all[THREADS];
    int numbers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        pthread_create(&all[i], NULL, turn, &numbers[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(all[i], NULL);
    }
}

/* A receive with too little room, and one that is taken back. */
static void errors(const char *what)
{
    MPI_Status status;
    int class, cancelled;
    MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
    fill(out[0], N, rank, 0);
    for (int step = 0; step < 3; step++) {
        MPI_Request request;
        int room = step == 1 ? N - 1 : N;
        MPI_Irecv(in[0], room, MPI_DOUBLE, other, 1, world, &request);
        MPI_Send(out[0], N, MPI_DOUBLE, other, 1, world);
        int code = MPI_Wait(&request, &status);
        MPI_Error_class(code, &class);
        MUST(class == (step == 1 ? MPI_ERR_TRUNCATE : MPI_SUCCESS));
        MUST(request == MPI_REQUEST_NULL);
        add(&class, sizeof class);
    }
    check(in[0], N, 0, &status, 1);
    if (strcmp(what, "cancel") == 0) {
        MPI_Request request;
        MPI_Irecv(in[0], N, MPI_DOUBLE, other, 1, world, &request);
        MPI_Cancel(&request);
        MPI_Wait(&request, &status);
        MPI_Test_cancelled(&status, &cancelled);
        MUST(cancelled);
        MPI_Barrier(world);
        /* One that is taken back does not wait for one that was posted before it. */
        MPI_Request before;
        MPI_Irecv(in[1], N, MPI_DOUBLE, MPI_ANY_SOURCE, MPI_ANY_TAG, world, &before);
        MPI_Irecv(in[0], N, MPI_DOUBLE, MPI_ANY_SOURCE, MPI_ANY_TAG, world, &request);
        MPI_Cancel(&request);
        MPI_Wait(&request, &status);
        MPI_Test_cancelled(&status, &cancelled);
        MUST(cancelled);
        MPI_Barrier(world);
        MPI_Send(out[0], N, MPI_DOUBLE, other, 1, world);
        MPI_Wait(&before, &status);
        check(in[1], N, 0, &status, 1);
        blocking(3);
    }
}

static void wrong(const char *what)
{
    if (strcmp(what, "raw") == 0) {
        /* A message past the wrappers: it has no header. */
        if (rank == 0) {
            PMPI_Send(out[0], N, MPI_DOUBLE, other, 1, world);
        } else {
            MPI_Recv(in[0], N, MPI_DOUBLE, other, 1, world, MPI_STATUS_IGNORE);
        }
    } else if (strcmp(what, "damaged") == 0) {
        /* A coded message comes back with a bit of its header changed. */
        if (rank == 0) {
            static unsigned char wire[16 * N];
            MPI_Status status;
            int bytes;
            PMPI_Recv(wire, sizeof wire, MPI_BYTE, other, 1, world, &status);
            PMPI_Get_count(&status, MPI_BYTE, &bytes);
            wire[0] ^= 1;
            PMPI_Send(wire, bytes, MPI_BYTE, other, 1, world);
        } else {
            MPI_Send(out[0], N, MPI_DOUBLE, other, 1, world);
            MPI_Recv(in[0], N, MPI_DOUBLE, other, 1, world, MPI_STATUS_IGNORE);
        }
    } else if (strcmp(what, "probe") == 0) {
        if (rank == 0) {
            MPI_Send(out[0], N, MPI_DOUBLE, other, 1, world);
        } else {
            MPI_Status status;
            MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, world, &status);
            MPI_Recv(in[0], N, MPI_DOUBLE, other, 1, world, &status);
        }
    } else if (strcmp(what, "prepared") == 0) {
        MPI_Request request;
        MPI_Recv_init(in[0], N, MPI_DOUBLE, other, 1, world, &request);
    } else if (strcmp(what, "kill") == 0) {
        if (rank == 1) {
            raise(SIGKILL);
        }
        MPI_Recv(in[0], N, MPI_DOUBLE, other, 1, world, MPI_STATUS_IGNORE);
    }
}

/* What is sent is noise, which is not coded, and what comes in its place is: the other rank
 * receives when that is long there. */
static void replaced(void)
{
    double *values = malloc(sizeof(double) * LONG);
    unsigned char *noise = malloc(sizeof(double) * LONG);
    srand(7);
    for (size_t i = 0; i < sizeof(double) * LONG; i++) {
        noise[i] = rand() >> 8;
    }
    if (rank == 0) {
        memcpy(values, noise, sizeof(double) * LONG);
        MPI_Sendrecv_replace(values, LONG, MPI_DOUBLE, other, 52, other, 53, world,
                             MPI_STATUS_IGNORE);
        MUST(values[5] == 5 && values[LONG - 1] == LONG - 1);
    } else {
        for (int i = 0; i < LONG; i++) {
            values[i] = i;
        }
        MPI_Send(values, LONG, MPI_DOUBLE, other, 53, world);
        usleep(100000);
        MPI_Recv(values, LONG, MPI_DOUBLE, other, 52, world, MPI_STATUS_IGNORE);
        MUST(memcmp(values, noise, sizeof(double) * LONG) == 0);
    }
    add(values, sizeof(double) * LONG);
    free(noise);
    free(values);
}

int main(int argc, char **argv)
{
    int provided, size;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    other = 1 - rank;
    const char *what = argc > 1 ? argv[1] : "";
    MPI_Comm halo;
    MPI_Comm_dup(MPI_COMM_WORLD, &halo);
    for (int step = 0; step < ROUNDS; step++) {
        world = step % 2 ? halo : MPI_COMM_WORLD;
        blocking(step);
        backwards(step);
        waits(step);
        mixed(step);
        transposed(step);
#ifdef LARGE
        large(step);
#endif
    }
    if (provided == MPI_THREAD_MULTIPLE) {
        threads();
    }
    world = MPI_COMM_WORLD;
    MPI_Barrier(world);
    replaced();
    wrong(what);
    errors(what);
    printf("rank %d: %016llx\n", rank, sum);
    MPI_Comm_free(&halo);
    MPI_Finalize();
    return 0;
}
