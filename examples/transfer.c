// Sends a gradient from one process to another over DLCP, with a bounded loss, in C.
//
//   cc -std=c99 examples/transfer.c -o transfer $(pkg-config --cflags --libs thalweg)
//   ./transfer recv 127.0.0.1:7000        in one shell
//   ./transfer send 127.0.0.1:7000        in another; either may start first
//
// docs/embedding.md says where pkg-config finds Thalweg.
#include <stdio.h>
#include <string.h>

#include <thalweg/thalweg_endpoint.h>

enum { ELEMENTS = 100000, SECONDS = 10, TOKEN = 42 };

static int fail(int code) {
  fprintf(stderr, "%s: %s\n", thalweg_code_name(code), thalweg_last_error());
  return 1;
}

int main(int argc, char** argv) {
  static float gradient[ELEMENTS];
  const int sending = argc == 3 && strcmp(argv[1], "send") == 0;
  if (argc != 3 || (!sending && strcmp(argv[1], "recv") != 0)) {
    fprintf(stderr, "usage: transfer send|recv HOST:PORT\n");
    return 2;
  }
  thalweg_endpoint_options options;
  thalweg_endpoint_options_init(&options);
  options.job_token = TOKEN; /* a real job draws a random one and gives it to its processes */
  if (!sending) options.listen = argv[2];

  thalweg_endpoint* here = NULL;
  thalweg_peer* peer = NULL;
  thalweg_transfer* transfer = NULL;
  int code = thalweg_endpoint_create(&options, &here);
  if (code == THALWEG_OK) {
    code = sending ? thalweg_endpoint_connect(here, argv[2], SECONDS, &peer)
                   : thalweg_endpoint_accept(here, SECONDS, &peer);
  }
  if (code != THALWEG_OK) return fail(code);

  if (sending) {
    for (int i = 0; i < ELEMENTS; ++i) gradient[i] = 1;
    thalweg_peer_send_options send;
    thalweg_peer_send_options_init(&send);
    send.loss_bound = 0.01;
    code = thalweg_peer_send(peer, gradient, ELEMENTS, THALWEG_FLOAT32, &send, &transfer);
  } else {
    thalweg_peer_recv_options receive;
    thalweg_peer_recv_options_init(&receive);
    receive.loss_bound = 0.01;
    code = thalweg_peer_recv(peer, gradient, ELEMENTS, THALWEG_FLOAT32, &receive, &transfer);
  }
  thalweg_report report;
  if (code == THALWEG_OK) code = thalweg_transfer_wait(transfer, &report);
  if (code != THALWEG_OK) return fail(code);

  double sum = 0;
  for (int i = 0; i < ELEMENTS; ++i) sum += gradient[i];
  printf("%s: %.2f %% arrived, %lld values missing, sum %.0f\n", argv[1], 100 * report.fraction,
         (long long)report.missing, sum);
  thalweg_transfer_free(transfer);
  thalweg_peer_free(peer);
  thalweg_endpoint_destroy(here);
  return 0;
}
