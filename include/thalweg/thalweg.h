// The C API: collective operations among the processes of a job, and messages between two of them.
// It is communicator.h for C, and for languages that call C. docs/embedding.md shows how to link
// it.
//
//   thalweg_communicator* all = NULL;
//   float gradient[1000] = {0};
//   if (thalweg_create(NULL, &all) != THALWEG_OK) return fail(thalweg_last_error());
//   if (thalweg_allreduce(all, gradient, gradient, 1000, THALWEG_FLOAT32, THALWEG_SUM, NULL) !=
//       THALWEG_OK) {
//     return fail(thalweg_last_error());
//   }
//   thalweg_destroy(all);
//
// Every rank calls the same operations in the same order, with the same sizes and types. No call
// waits longer than its timeout. When a rank dies, hangs or leaves, the operations in flight fail
// on every other rank with THALWEG_PEER_LOST or THALWEG_TIMEOUT, thalweg_last_error_rank() names
// that rank, and all later operations of the communicator fail too. thalweg_shrink() makes a new
// communicator of the survivors.
//
// Any thread may use any communicator or operation, but none may use one after it was destroyed or
// freed. In a child of fork(), every call on an object of the parent is an error.
//
// What the caller gives is checked: a null pointer where one is needed, a negative size or an
// unknown number gives THALWEG_BAD_ARGUMENT and a text. Names and tensors are not kept longer than
// the comment of the call says.
#pragma once

// NOLINTBEGIN(readability-identifier-naming,modernize-*): this is C
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- Version ------------------------------------------------------------------------------------

// The version of this header. Programs that were compiled with one minor version need a library of
// the same minor version; the linker's name of the library says so (libthalweg.so.0.1).
#define THALWEG_VERSION_MAJOR 0
#define THALWEG_VERSION_MINOR 1
#define THALWEG_VERSION_PATCH 0

// The version of the library that runs: 10000 * major + 100 * minor + patch, and as a text.
int thalweg_version(void);
const char* thalweg_version_text(void);

// ---- Errors -------------------------------------------------------------------------------------

// What every call returns. The errors are those of ErrorCode in result.h, each one higher, because
// 0 is success here. docs/errors.md says what to do about each.
enum {
  THALWEG_OK = 0,
  THALWEG_BAD_ARGUMENT = 1,  // an argument, option or variable is not allowed
  THALWEG_TIMEOUT = 2,       // a limit of time has passed
  THALWEG_PEER_LOST = 3,     // another process died, left or cannot be reached
  THALWEG_MISMATCH = 4,      // ranks differ in their calls, settings, keys or versions
  THALWEG_CANCELLED = 5,     // given up on purpose
  THALWEG_NO_RESOURCE = 6,   // no memory, port, file descriptor or table entry is free
  THALWEG_INTERNAL = 7       // something that should not happen
};

// "peer lost" for THALWEG_PEER_LOST, "ok" for THALWEG_OK, "?" for a number that is no code. The
// text is never freed.
const char* thalweg_code_name(int code);
// What went wrong in the last call of this thread that failed, for a user. Texts longer than 2,000
// bytes are cut. It is valid until the next call of this thread that fails. Without a failure: "".
const char* thalweg_last_error(void);
// The rank to blame for that failure, in the communicator of the call. -1: no single rank is to
// blame, or it is not known.
int thalweg_last_error_rank(void);

// ---- Types --------------------------------------------------------------------------------------

// Element types.
enum {
  THALWEG_FLOAT32 = 0,
  THALWEG_FLOAT64 = 1,
  THALWEG_FLOAT16 = 2,
  THALWEG_BFLOAT16 = 3,
  THALWEG_INT8 = 4,
  THALWEG_INT16 = 5,
  THALWEG_INT32 = 6,
  THALWEG_INT64 = 7,
  THALWEG_FLOAT8_E4M3FN = 8,  // 4 bits of exponent, 3 of mantissa, no infinity; up to 448
  THALWEG_FLOAT8_E5M2 = 9     // 5 bits of exponent, 2 of mantissa; up to 57,344
};

// Reductions. The mean is the sum divided once, at the end, by the number of contributions.
enum { THALWEG_SUM = 0, THALWEG_PRODUCT = 1, THALWEG_MIN = 2, THALWEG_MAX = 3, THALWEG_MEAN = 4 };

// Transports, as Transport in communicator.h explains them.
enum { THALWEG_TCP = 0, THALWEG_DLCP = 1, THALWEG_ATP = 2, THALWEG_AUTO = 3 };

enum {
  THALWEG_ANY_SOURCE = -1,        // of a receive
  THALWEG_NO_COLOR = -1,          // of a split: this rank gets no communicator
  THALWEG_FROM_ENVIRONMENT = -1,  // rank and size are those that the launcher gave
  THALWEG_DEFAULT = -1            // of options whose default the comment gives
};

typedef struct thalweg_communicator thalweg_communicator;
// An operation in flight.
typedef struct thalweg_operation thalweg_operation;

// ---- Options ------------------------------------------------------------------------------------

// Options of a communicator; CommunicatorOptions in communicator.h says more about each.
// thalweg_options_init() sets all of them, and must be called before any is changed. Texts may be
// null, which is the same as empty. They are not needed after the call.
typedef struct thalweg_options {
  size_t struct_size;          // set by thalweg_options_init(); not to be changed
  int rank;                    // THALWEG_FROM_ENVIRONMENT
  int size;                    // THALWEG_FROM_ENVIRONMENT
  const char* store;           // "host:port" of the store; empty: from the environment
  const char* group;           // each communicator of a job needs a different one; empty: "world"
  int join;                    // not 0: join a job that runs, whose ranks call thalweg_grow()
  double timeout_s;            // of thalweg_create(); 60
  const char* scheme;          // as `thalweg plan` takes it ("ring"); empty: chosen for each tensor
  const char* topology;        // a shorthand or the text of a YAML file; empty: one switch
  int transport;               // THALWEG_TCP
  int shared_memory;           // 0: ranks of one host use the network too; 1
  const char* interfaces;      // names, as in "eth0,eth1"; empty: THALWEG_INTERFACE
  int streams;                 // TCP streams of a pair of interfaces, 1 to 16; THALWEG_DEFAULT: 1
  int channels;                // threads for large tensors, 1 to 8; THALWEG_DEFAULT: chosen
  size_t channel_bytes;        // the least that such a thread gets of a tensor; 512 KiB
  int dlcp_payload;            // bytes in a packet, a multiple of 8; THALWEG_DEFAULT: 1400
  int dlcp_paths;              // UDP ports to each rank, 1 to 32; THALWEG_DEFAULT: chosen
  double dlcp_line_rate_gbps;  // of this host's link; 0: that of the interface
  const char* atp_switch;      // "host:port" of a switch; empty: THALWEG_SWITCH
  int atp_servers;             // ranks that add up what the switch did not; 0: all
  uint32_t atp_elements;       // elements in a packet over ATP; 256
} thalweg_options;
void thalweg_options_init(thalweg_options* options);

// Options of one call; CallOptions in communicator.h says more about each. Where a call takes them,
// null stands for the values that thalweg_call_options_init() sets.
typedef struct thalweg_call_options {
  size_t struct_size;        // set by thalweg_call_options_init(); not to be changed
  double timeout_s;          // 60
  const char* scheme;        // empty: the communicator's
  int priority;              // among the operations in flight, lower ones send first; 0
  int transport;             // THALWEG_DEFAULT: the communicator's
  double loss_bound;         // over DLCP, for floats by sum or mean: in [0, 1); 0, which is exact
  double result_loss_bound;  // below 0: half of loss_bound; -1
  int dlcp_queue;            // 1, the most urgent, to 7; 1
  void* residual;            // error feedback of an allreduce by mean in place; null: none
} thalweg_call_options;
void thalweg_call_options_init(thalweg_call_options* options);

// ---- Communicators ------------------------------------------------------------------------------

// Every rank of the group calls it. Null options: the launcher's environment says which rank this
// is (docs/launching.md). If it fails, *made is null. The caller destroys what it made.
int thalweg_create(const thalweg_options* options, thalweg_communicator** made);
// Tells the other ranks that this one leaves. Operations in flight fail; they are still to be
// freed. Null is allowed.
void thalweg_destroy(thalweg_communicator* communicator);

int thalweg_rank(const thalweg_communicator* communicator, int* rank);
int thalweg_size(const thalweg_communicator* communicator, int* size);
// *has becomes 1 if a switch has admitted this communicator and may sum what goes over ATP, and 0
// otherwise.
int thalweg_has_switch(const thalweg_communicator* communicator, int* has);
// Writes what THALWEG_AUTO has chosen to `text`, one line for each kind of calls so far: the kind,
// whether its trials go on, how many calls and trials there were and what these cost, what is in
// use, and why. At most `size` bytes are written, the last of them 0. *length becomes the length of
// the whole text, without that 0; a text that is not shorter than `size` was cut. `text` may be
// null if `size` is 0.
int thalweg_auto_choices(const thalweg_communicator* communicator, char* text, size_t size,
                         size_t* length);
// Returns why every further operation fails, once the communicator is broken, and THALWEG_OK
// before.
int thalweg_broken(const thalweg_communicator* communicator);
// Tells the other ranks that this one leaves, and returns without waiting. Operations in flight
// fail, and so does every further call. The communicator is still to be destroyed.
int thalweg_leave(const thalweg_communicator* communicator);

// Divides the ranks among new communicators: those with the same color (0 or more) get one
// together, in the order of their keys, then of their ranks. All ranks call it. *made is null for a
// rank with THALWEG_NO_COLOR. The new communicators do not depend on this one.
int thalweg_split(const thalweg_communicator* communicator, int color, int key,
                  const thalweg_call_options* options, thalweg_communicator** made);
// Makes a communicator of these ranks and of the newcomers that wait now (thalweg_options.join).
// All ranks call it. *made is null if no newcomer waits.
int thalweg_grow(const thalweg_communicator* communicator, const thalweg_call_options* options,
                 thalweg_communicator** made);
// After a failure: makes a communicator of the ranks that call it within `window_s` seconds.
int thalweg_shrink(const thalweg_communicator* communicator, double window_s,
                   thalweg_communicator** made);

// ---- Collectives --------------------------------------------------------------------------------
//
// These block until the operation is over. `options` may be null. `type` is an element type and
// `op` a reduction. `in` and `out` may overlap only where the comment says so. A tensor of 0
// elements may be null.

// `out` gets the reduction of all ranks' `in`. Both hold `elements`, and may be the same memory.
int thalweg_allreduce(const thalweg_communicator* communicator, const void* in, void* out,
                      int64_t elements, int type, int op, const thalweg_call_options* options);
// The root's `tensor` holds the result afterwards. Those of the other ranks are not changed.
int thalweg_reduce(const thalweg_communicator* communicator, void* tensor, int64_t elements,
                   int type, int op, int root, const thalweg_call_options* options);
// `tensor` is read at the root and written elsewhere.
int thalweg_broadcast(const thalweg_communicator* communicator, void* tensor, int64_t elements,
                      int type, int root, const thalweg_call_options* options);
// Every rank gives `elements`; `out` holds size times as many, ordered by rank. `in` may be the
// rank's own part of `out`.
int thalweg_all_gather(const thalweg_communicator* communicator, const void* in, void* out,
                       int64_t elements, int type, const thalweg_call_options* options);
// Every rank gets `elements`, its part of the reduction; `in` holds size times as many. `in` and
// `out` may overlap.
int thalweg_reduce_scatter(const thalweg_communicator* communicator, const void* in, void* out,
                           int64_t elements, int type, int op, const thalweg_call_options* options);
// Both hold size parts of `elements` each. Part r of `in` becomes, on rank r, the part of `out`
// with this rank's number. `in` and `out` may overlap.
int thalweg_all_to_all(const thalweg_communicator* communicator, const void* in, void* out,
                       int64_t elements, int type, const thalweg_call_options* options);
// Every rank gives `elements`. The root's `out` holds size times as many, ordered by rank, and its
// `in` may be its own part of it. The other ranks' `out` is ignored, and may be null.
int thalweg_gather(const thalweg_communicator* communicator, const void* in, void* out,
                   int64_t elements, int type, int root, const thalweg_call_options* options);
// Every rank gets `elements`. The root's `in` holds size times as many, ordered by rank, and its
// `out` may be its own part of it. The other ranks' `in` is ignored, and may be null.
int thalweg_scatter(const thalweg_communicator* communicator, const void* in, void* out,
                    int64_t elements, int type, int root, const thalweg_call_options* options);
// It is over when every rank has called it.
int thalweg_barrier(const thalweg_communicator* communicator, const thalweg_call_options* options);

// ---- Messages -----------------------------------------------------------------------------------

// Messages are not part of the order of collectives. A program must not rely on a send being over
// before its receive is called. `tag` is 0 or more. Type and size are the same at both ends.
int thalweg_send(const thalweg_communicator* communicator, const void* tensor, int64_t elements,
                 int type, int target, int tag, const thalweg_call_options* options);
// Takes the first message with this tag from `source`, or from any rank with THALWEG_ANY_SOURCE.
// *sender becomes the rank that sent it, unless `sender` is null.
int thalweg_recv(const thalweg_communicator* communicator, void* tensor, int64_t elements, int type,
                 int source, int tag, int* sender, const thalweg_call_options* options);

// ---- Operations in flight -----------------------------------------------------------------------
//
// Each ..._async call starts what the call without that ending does, and sets *started. If it
// fails, *started is null. Until the operation is over, the caller keeps the tensors, does not
// change what is read and does not use what is written. The caller frees the operation.

int thalweg_allreduce_async(const thalweg_communicator* communicator, const void* in, void* out,
                            int64_t elements, int type, int op, const thalweg_call_options* options,
                            thalweg_operation** started);
int thalweg_reduce_async(const thalweg_communicator* communicator, void* tensor, int64_t elements,
                         int type, int op, int root, const thalweg_call_options* options,
                         thalweg_operation** started);
int thalweg_broadcast_async(const thalweg_communicator* communicator, void* tensor,
                            int64_t elements, int type, int root,
                            const thalweg_call_options* options, thalweg_operation** started);
int thalweg_all_gather_async(const thalweg_communicator* communicator, const void* in, void* out,
                             int64_t elements, int type, const thalweg_call_options* options,
                             thalweg_operation** started);
int thalweg_reduce_scatter_async(const thalweg_communicator* communicator, const void* in,
                                 void* out, int64_t elements, int type, int op,
                                 const thalweg_call_options* options, thalweg_operation** started);
int thalweg_all_to_all_async(const thalweg_communicator* communicator, const void* in, void* out,
                             int64_t elements, int type, const thalweg_call_options* options,
                             thalweg_operation** started);
int thalweg_gather_async(const thalweg_communicator* communicator, const void* in, void* out,
                         int64_t elements, int type, int root, const thalweg_call_options* options,
                         thalweg_operation** started);
int thalweg_scatter_async(const thalweg_communicator* communicator, const void* in, void* out,
                          int64_t elements, int type, int root, const thalweg_call_options* options,
                          thalweg_operation** started);
int thalweg_barrier_async(const thalweg_communicator* communicator,
                          const thalweg_call_options* options, thalweg_operation** started);
int thalweg_send_async(const thalweg_communicator* communicator, const void* tensor,
                       int64_t elements, int type, int target, int tag,
                       const thalweg_call_options* options, thalweg_operation** started);
int thalweg_recv_async(const thalweg_communicator* communicator, void* tensor, int64_t elements,
                       int type, int source, int tag, const thalweg_call_options* options,
                       thalweg_operation** started);

// Blocks until the operation is over, which is at its timeout at the latest, and returns how it
// went. It may be called again, and does not free the operation.
int thalweg_wait(const thalweg_operation* operation);
// *done becomes 1 if the operation is over, and 0 if it is not.
int thalweg_test(const thalweg_operation* operation, int* done);
// For a receive that is over: *sender becomes the rank that sent the message.
int thalweg_sender(const thalweg_operation* operation, int* sender);
// An operation in flight goes on, and its tensors must be kept until it is over. Null is allowed.
void thalweg_free(thalweg_operation* operation);

#ifdef __cplusplus
}
#endif
// NOLINTEND(readability-identifier-naming,modernize-*)
