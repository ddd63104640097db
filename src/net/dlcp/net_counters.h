// Adds the counters of one DLCP peer to a sum.
#pragma once

#include <thalweg/endpoint.h>

namespace thalweg {

inline void add(NetCounters& sum, const NetCounters& more) {
  sum.packets_sent += more.packets_sent;
  sum.packets_retransmitted += more.packets_retransmitted;
  sum.packets_received += more.packets_received;
  sum.packets_marked += more.packets_marked;
  sum.packets_unused += more.packets_unused;
  sum.packets_bad += more.packets_bad;
  sum.packets_corrupt += more.packets_corrupt;
  sum.packets_forged += more.packets_forged;
  sum.packets_replayed += more.packets_replayed;
  sum.packets_stale += more.packets_stale;
  sum.messages_bad += more.messages_bad;
  sum.grants_sent += more.grants_sent;
  sum.grants_received += more.grants_received;
  sum.messages_forged += more.messages_forged;
  sum.send_errors += more.send_errors;
  sum.peers_refused += more.peers_refused;
  sum.send_calls += more.send_calls;
  sum.receive_calls += more.receive_calls;
}

}  // namespace thalweg
