"""Sends with mpi4py, which loads MPI into a scope of its own; run on two ranks."""

from mpi4py import MPI

world = MPI.COMM_WORLD
rank, peer = world.rank, 1 - world.rank
out, back = bytearray([rank] * 1000), bytearray(1000)
for _ in range(5):
    world.Sendrecv(out, peer, 3, back, peer, 3)
assert back == bytearray([peer] * 1000)
request = world.Isend(out, peer, 4)
world.Recv(back, peer, 4)
request.Wait()
copy = world.Dup()
assert copy.allreduce(rank) == 1
assert copy.sendrecv({"from": rank}, peer, 5, source=peer, recvtag=5) == {"from": peer}
if rank == 0:
    print("package: all right")
