// Sums a vector over all processes of a job, in C.
//
//   cc -std=c99 examples/allreduce.c -o sum $(pkg-config --cflags --libs thalweg)
//   thalweg run -n 2 -- ./sum
//
// docs/embedding.md says where pkg-config finds Thalweg. It also runs under torchrun, mpirun and
// srun: rank and size come from the environment.
#include <stdio.h>

#include <thalweg/thalweg.h>

enum { ELEMENTS = 100000 };

static int fail(int code) {
  fprintf(stderr, "%s: %s\n", thalweg_code_name(code), thalweg_last_error());
  return 1;
}

int main(void) {
  static float gradient[ELEMENTS];
  static float later[ELEMENTS];
  thalweg_communicator* all = NULL;
  int code = thalweg_create(NULL, &all);
  int rank = 0;
  int size = 0;
  if (code == THALWEG_OK) code = thalweg_rank(all, &rank);
  if (code == THALWEG_OK) code = thalweg_size(all, &size);
  if (code != THALWEG_OK) return fail(code);

  for (int i = 0; i < ELEMENTS; ++i) later[i] = gradient[i] = (float)(rank + 1);
  code = thalweg_allreduce(all, gradient, gradient, ELEMENTS, THALWEG_FLOAT32, THALWEG_SUM, NULL);
  if (code != THALWEG_OK) return fail(code);

  // The same without waiting: the program may compute between the two calls.
  thalweg_operation* operation = NULL;
  code = thalweg_allreduce_async(all, later, later, ELEMENTS, THALWEG_FLOAT32, THALWEG_MEAN, NULL,
                                 &operation);
  if (code == THALWEG_OK) code = thalweg_wait(operation);
  if (code != THALWEG_OK) return fail(code);
  thalweg_free(operation);

  printf("rank %d of %d: sum %g, mean %g\n", rank, size, (double)gradient[ELEMENTS - 1],
         (double)later[ELEMENTS - 1]);
  thalweg_destroy(all);
  return 0;
}
