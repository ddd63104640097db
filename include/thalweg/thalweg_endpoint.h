// The C API of tensors between two processes: exactly or with a bounded loss over UDP (DLCP), and
// to a parameter server. It is endpoint.h and parameter_client.h for C; errors are those of
// thalweg.h.
//
//   thalweg_endpoint_options options;
//   thalweg_endpoint_options_init(&options);
//   options.job_token = token;
//   thalweg_endpoint* here = NULL;
//   thalweg_peer* peer = NULL;
//   thalweg_transfer* transfer = NULL;
//   int code = thalweg_endpoint_create(&options, &here);
//   if (code == THALWEG_OK) code = thalweg_endpoint_connect(here, "host:7000", 10, &peer);
//   if (code == THALWEG_OK) {
//     code = thalweg_peer_send(peer, gradient, 1000, THALWEG_FLOAT32, NULL, &transfer);
//   }
//   if (code == THALWEG_OK) code = thalweg_transfer_wait(transfer, NULL);
//
// Both ends of a transfer name the same key, size, type and bound. If they differ, the transfer
// fails on both ends with an error that shows both values. A transfer always ends, at its timeout
// at the latest.
//
// Any thread may use any endpoint, peer or transfer, but none may use one after it was destroyed or
// freed. They may be freed in any order.
#pragma once

// NOLINTBEGIN(readability-identifier-naming,modernize-*): this is C
#include <stddef.h>
#include <stdint.h>

#include <thalweg/thalweg.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- Options ------------------------------------------------------------------------------------

// Options of an endpoint; EndpointOptions in endpoint.h says more about each.
// thalweg_endpoint_options_init() sets all of them, and must be called before any is changed. Texts
// may be null, which is the same as empty. They are not needed after the call.
typedef struct thalweg_endpoint_options {
  size_t struct_size;           // set by thalweg_endpoint_options_init(); not to be changed
  const char* listen;           // "host:port"; port 0: any that is free; empty: it only connects
  const char* connect_from;     // this host's address for connections; empty: the system chooses
  uint64_t job_token;           // a random number that only the processes of the job know; 0
  const char* job_key;          // 32 hexadecimal digits, the same in all processes; empty: none
  const char* name;             // of this end in its peers' errors; empty: the process id
  uint32_t packet_payload;      // bytes of a tensor in one packet; 0: what the path allows
  double line_rate_gbps;        // the highest rate of sending; 0: that of the interface
  uint32_t paths;               // UDP ports to send from, 1 to 32; 0: chosen
  size_t receive_buffer_bytes;  // of each UDP socket, or as much as the system allows; 32 MiB
  size_t send_buffer_bytes;     // 4 MiB
  double peer_timeout_s;        // a peer that does not answer for so long is lost; 10
  // How long a receiver waits for packets that are late before it asks for them again: while little
  // is known about the path (1 ms), at least (20 us) and at most (100 ms). GraceOptions in
  // endpoint.h.
  double grace_initial_s;
  double grace_least_s;
  double grace_most_s;
  int grants;                  // not 0: receivers grant what may be sent (endpoint.h); 0
  double grants_round_trip_s;  // of the idle network, up to 10; 0: measured
  uint8_t dscp[8];             // the DSCP of each queue, 0 first; 59, 51, 43, 35, 27, 19, 11, 3
  int checksum;                // 0: packets without a key carry no checksum; 1
  int offload;                 // 0: no segmentation by the kernel or the network card; 1
  const char* record_folder;   // where connections are recorded; empty: they are not
  // Called with each warning, from any thread. Null: warnings go to standard error.
  void (*warn)(const char* text, void* context);
  void* warn_context;
} thalweg_endpoint_options;
void thalweg_endpoint_options_init(thalweg_endpoint_options* options);

// How switches treat a packet: its queue, from 1, the most urgent, to 7 (0 is for control
// messages), and, if `important` is not 0, by a mark where they drop others.
typedef struct thalweg_packet_tag {
  int queue;
  int important;
} thalweg_packet_tag;

// Options of a transfer at its sender. Null stands for the values that
// thalweg_peer_send_options_init() sets.
typedef struct thalweg_peer_send_options {
  size_t struct_size;  // set by the init function; not to be changed
  uint64_t key;        // equal keys match in the order of their starts; 0
  double loss_bound;   // for floats: the fraction of packets that may be lost; 0, which is exact
  thalweg_packet_tag tag;  // of all packets, unless tag_of is set; queue 1, important
  // Gives the tag of the packet that carries `count` elements from `first` on. thalweg_peer_send()
  // calls it once for each packet, before it returns. Null: `tag` is that of all.
  thalweg_packet_tag (*tag_of)(int64_t first, int64_t count, void* context);
  void* tag_context;
  uint32_t urgency;  // among the transfers to one peer, the lowest number is sent first; 0
  int gradual;       // not 0: elements leave when thalweg_transfer_offer() has named them; 0
  double timeout_s;  // 30
} thalweg_peer_send_options;
void thalweg_peer_send_options_init(thalweg_peer_send_options* options);

// Elements [begin, end) of a tensor.
typedef struct thalweg_range {
  int64_t begin;
  int64_t end;
} thalweg_range;

// Options of a transfer at its receiver. Null stands for the values that
// thalweg_peer_recv_options_init() sets.
typedef struct thalweg_peer_recv_options {
  size_t struct_size;  // set by the init function; not to be changed
  uint64_t key;        // 0
  double loss_bound;   // 0
  // The loss to aim for, at most the bound: the receiver waits for more packets as long as waiting
  // costs less than it brings. Below 0: it is done as soon as the bound is kept. -1.
  double loss_target;
  uint32_t urgency;  // with grants: among all transfers, the lowest number is granted first; 0
  // Called with elements that have arrived since the last call: whole packets, each once, in any
  // order. From a thread of the endpoint; it must not block. Null: not called.
  void (*on_arrival)(const thalweg_range* ranges, size_t count, void* context);
  void* arrival_context;
  double timeout_s;  // 30
} thalweg_peer_recv_options;
void thalweg_peer_recv_options_init(thalweg_peer_recv_options* options);

// ---- Endpoints and peers ------------------------------------------------------------------------

typedef struct thalweg_endpoint thalweg_endpoint;
// A connection to another endpoint.
typedef struct thalweg_peer thalweg_peer;

// Counts of an endpoint or a peer since its start.
typedef struct thalweg_counters {
  uint64_t packets_sent;
  uint64_t packets_retransmitted;
  uint64_t packets_received;  // placed in a tensor
  uint64_t packets_marked;    // marked as congested by a switch
  uint64_t packets_unused;    // duplicates, or arrived after their transfer was over
  uint64_t packets_bad;       // dropped: not packets of DLCP, or of another job
  uint64_t packets_corrupt;   // without a job key: dropped, changed on their way
  uint64_t packets_forged;    // with a job key: dropped, with a wrong tag
  uint64_t packets_replayed;  // with a job key: dropped, seen before
  uint64_t packets_stale;     // with a job key: dropped, of an earlier connection or far too old
  uint64_t messages_bad;
  uint64_t grants_sent;
  uint64_t grants_received;
  uint64_t messages_forged;  // with a job key; one on the TCP stream ends the connection
  uint64_t send_errors;      // packets that the kernel refused
  uint64_t peers_refused;    // endpoint only: wrong token, key or version, no hello
  uint64_t send_calls;       // system calls that sent data
  uint64_t receive_calls;    // system calls that received data
} thalweg_counters;

// Null options: the defaults. If it fails, *made is null. The caller destroys what it made.
int thalweg_endpoint_create(const thalweg_endpoint_options* options, thalweg_endpoint** made);
// Ends all transfers and connections, and tells the peers. Peers and transfers are still to be
// freed. Null is allowed.
void thalweg_endpoint_destroy(thalweg_endpoint* endpoint);
// *address becomes where it listens, with the port that was chosen, or "" if it does not listen. It
// is valid as long as the endpoint.
int thalweg_endpoint_address(const thalweg_endpoint* endpoint, const char** address);

// Tries for at most `limit_s` seconds, so that either process may start first. If it fails, *made
// is null.
int thalweg_endpoint_connect(const thalweg_endpoint* endpoint, const char* address, double limit_s,
                             thalweg_peer** made);
// The next peer that connected within `limit_s` seconds.
int thalweg_endpoint_accept(const thalweg_endpoint* endpoint, double limit_s, thalweg_peer** made);
int thalweg_endpoint_counters(const thalweg_endpoint* endpoint, thalweg_counters* counters);

// *name becomes "name (address)", as in errors. It is valid as long as the peer.
int thalweg_peer_name(const thalweg_peer* peer, const char** name);
// *connected becomes 1, or 0 if the connection has ended.
int thalweg_peer_connected(const thalweg_peer* peer, int* connected);
// *bytes becomes the most bytes of a tensor that one packet carries.
int thalweg_peer_packet_payload(const thalweg_peer* peer, size_t* bytes);
// *vanishes becomes 1 if the peer has sent data again and again and nothing of it arrives, as where
// a path drops packets of this size; otherwise 0.
int thalweg_peer_data_vanishes(const thalweg_peer* peer, int* vanishes);
int thalweg_peer_counters(const thalweg_peer* peer, thalweg_counters* counters);
// Ends the connection. All its transfers fail.
int thalweg_peer_close(const thalweg_peer* peer);
// The connection goes on. Null is allowed.
void thalweg_peer_free(thalweg_peer* peer);

// Reads the job key from the first line of a file into `key`, which has room for 33 bytes.
int thalweg_read_job_key(const char* path, char* key, size_t size);

// ---- Transfers ----------------------------------------------------------------------------------

typedef struct thalweg_transfer thalweg_transfer;

// Starts to send `elements` of `tensor`, which is read, without a copy, until the transfer is over.
// `options` may be null. If it fails, *started is null. The caller frees the transfer.
int thalweg_peer_send(const thalweg_peer* peer, const void* tensor, int64_t elements, int type,
                      const thalweg_peer_send_options* options, thalweg_transfer** started);
// Starts to receive. Elements of `tensor` that do not arrive keep their values.
int thalweg_peer_recv(const thalweg_peer* peer, void* tensor, int64_t elements, int type,
                      const thalweg_peer_recv_options* options, thalweg_transfer** started);

// How a transfer went. A sender's report holds what its receiver told it.
typedef struct thalweg_report {
  double fraction;           // fraction of the packets that arrived
  int64_t packets;           // of the tensor
  int64_t bytes;             // of the tensor
  uint64_t retransmissions;  // packets sent again (sender) or asked for again (receiver)
  double time_s;
  int64_t missing;  // at the receiver: elements that did not arrive
} thalweg_report;

// Blocks until the transfer is over, and returns how it went. `report` may be null. It may be
// called again.
int thalweg_transfer_wait(const thalweg_transfer* transfer, thalweg_report* report);
// The same for at most `limit_s` seconds. Then it returns THALWEG_TIMEOUT, and the transfer goes
// on.
int thalweg_transfer_wait_for(const thalweg_transfer* transfer, double limit_s,
                              thalweg_report* report);
// *done becomes 1 if the transfer is over, and 0 if it is not.
int thalweg_transfer_test(const thalweg_transfer* transfer, int* done);
// For a receive that went well: the first `most` ranges of elements that did not arrive, in order.
// *count becomes how many there are, which may be more.
int thalweg_transfer_missing(const thalweg_transfer* transfer, thalweg_range* ranges, size_t most,
                             size_t* count);
// The elements [begin, end) of a gradual send are complete and may leave.
int thalweg_transfer_offer(const thalweg_transfer* transfer, int64_t begin, int64_t end);
// Ends the transfer with a failure, here and at the peer. The tensor is the caller's again when the
// transfer is over.
int thalweg_transfer_cancel(const thalweg_transfer* transfer);
// A transfer in flight goes on, and its tensor must be kept until it is over. Null is allowed.
void thalweg_transfer_free(thalweg_transfer* transfer);

// ---- Parameter servers --------------------------------------------------------------------------

// A worker's connection to `thalweg ps`. One thread at a time may use it.
typedef struct thalweg_parameters thalweg_parameters;

// `worker` is below the number of workers that the server waits for; `timeout_s` limits this call
// and every later one. If it fails, *made is null.
int thalweg_parameters_connect(const char* server, uint32_t worker, double timeout_s,
                               thalweg_parameters** made);
// Names a tensor. Its value is that of the first worker to name it, and is copied into `values`.
int thalweg_parameters_init(thalweg_parameters* parameters, const char* name, float* values,
                            int64_t elements);
int thalweg_parameters_push(thalweg_parameters* parameters, const char* name, const float* gradient,
                            int64_t elements);
// *steps becomes the number of steps in the value, unless it is null.
int thalweg_parameters_pull(thalweg_parameters* parameters, const char* name, float* values,
                            int64_t elements, uint64_t* steps);
// Null is allowed.
void thalweg_parameters_free(thalweg_parameters* parameters);

#ifdef __cplusplus
}
#endif
// NOLINTEND(readability-identifier-naming,modernize-*)
