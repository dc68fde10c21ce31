// all_reduce by MPI: mpirun -n RANKS mpi_load BYTES SECONDS; mpirun pins, or does not
#include "tests/bench/collective_load.h"

#include <cstdlib>
#include <mpi.h>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc != 3) return std::fprintf(stderr, "mpirun -n RANKS mpi_load BYTES SECONDS\n"), 2;
  const std::size_t count = std::strtoull(argv[1], nullptr, 10) / sizeof(float);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::vector<float> data(count);
  load::measure(rank, data.data(), count, std::atof(argv[2]), [&] {
    MPI_Allreduce(MPI_IN_PLACE, data.data(), static_cast<int>(count), MPI_FLOAT, MPI_SUM,
                  MPI_COMM_WORLD);
  });
  MPI_Finalize();
  return 0;
}
