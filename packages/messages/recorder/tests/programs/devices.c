/* Sends memory that a driver says is a device's; the driver is loaded after MPI has begun. */
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>

static int rank;

static void exchange(double *out, int tag)
{
    static double in[100];
    MPI_Sendrecv(out, 100, MPI_DOUBLE, 1 - rank, tag, in, 100, MPI_DOUBLE, 1 - rank, tag,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

int main(int argc, char **argv)
{
    static double host[100];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    exchange(host, 1);
    void *driver = dlopen(argv[1], RTLD_NOW);
    double *device = driver ? dlsym(driver, "memory") : NULL;
    if (!device) {
        fprintf(stderr, "%s\n", dlerror());
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    exchange(device, 2);
    exchange(host, 3);
    MPI_Finalize();
    return 0;
}
