// Collective: the protocol by which the ranks of one communicator run their operations over
// streams, without I/O. One object is one rank's end. It decides the order of data, which data has
// to wait, whom to ask, whom to blame and when to give up. Payloads do not pass through it: the
// driver moves them, and asks next_data() which send comes next on a stream and on_data() what to
// do with what arrived.
//
// Order. Operations are numbered in the order of their calls, which is the same on all ranks. A
// data frame of an operation that this rank has not started stalls its stream: nothing behind it is
// read. That is safe because a rank sends data of an operation only if no older operation has data
// for that peer, or if the peer is known to have started it. So behind a stalled frame there is
// nothing that an operation started here waits for.
//
// Questions (questions.cc). A rank that has waited for a second asks the peers of its call where
// they are, and again every second. Each answers with its call and the last rank that it is known
// to wait for, so that in a chain of ranks that wait for each other the name of the last one moves
// one rank further with every question. The rank that waits for the last one itself gives up a
// moment before its deadline, and all ranks get its error.
//
// Late ranks. A rank that was stopped, or had no processor, comes to a deadline late. The others
// may have said meanwhile who hangs: this one. It reads for kReadTime before it judges anybody.
//
// Roll call. A call whose data moves by other means than streams cannot say whom it waits for.
// Before such a call is late, call_roll() asks all connected ranks, and the one that says nothing
// hangs.
//
// Failure. The first failure breaks the communicator: all operations end with it. All connected
// ranks are told, and they tell theirs.
//
// Verbs. After each of start(), on_*(), fail() and leave(), poll poll_control() and poll_over()
// until both return false. next_timer() may have changed after each, too.
//
// Invariants:
// 1. Every call that was started is over exactly once: poll_over() returns it.
// 2. A call is over by its deadline, if on_timer() is called then. If on_timer() comes more than
//    kLate after it, the call is over kReadTime later.
// 3. When no call runs, no send is queued and no timer is set, unless a stream is stalled.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "proto/collective/call.h"
#include "proto/collective/frames.h"

namespace thalweg::proto {

// What becomes of a data frame that arrived.
enum class DataVerdict : std::uint8_t {
  kTake,      // its payload belongs to the call
  kStall,     // it has to wait; call on_stall(), and on_data() again when a call has started
  kDrop,      // its payload, and that of all further data from this peer, is worthless
  kNonsense,  // the peer breaks the protocol; close its stream
};

class Collective {
 public:
  // A rank that is so late for a deadline, or for its questions before, was stopped for a while.
  static constexpr Duration kLate = Duration::milliseconds(500);
  static constexpr Duration kReadTime = Duration::milliseconds(1'000);

  Collective(Rank rank, int size) : rank_(rank), peers_(static_cast<std::size_t>(size)) {}

  // Calls.
  // Gives the call the next number and begins it. Requires that nothing is broken and that numbers
  // are left. The call must stay until poll_over() returned it. Try stalled streams again then.
  void start(CollectiveCall& call);
  // This rank cannot start its next call before it has reached another rank, and tries to. None: it
  // has, or has given up. Ranks that ask are told.
  void set_reaching(std::optional<Rank> peer) { reaching_ = peer; }
  [[nodiscard]] bool numbers_are_left() const { return started_ < kMostOperations; }
  // Breaks the communicator if no numbers are left.
  void fail_without_numbers();
  // The call has no more to do.
  void finish(CollectiveCall& call);
  // A call that is over, and how.
  bool poll_over(CollectiveCall*& call, Status& status);
  // The calls that run, ordered by number.
  [[nodiscard]] const std::vector<CollectiveCall*>& running() const { return running_; }
  [[nodiscard]] std::uint32_t started() const { return started_; }

  // Streams.
  void on_connected(Rank peer);
  // Nothing more comes from the peer, nor gets there.
  void on_closed(Rank peer, const std::string& why);
  // `call` is set if the frame is to be taken.
  [[nodiscard]] DataVerdict on_data(Rank peer, const DataFrame& frame, CollectiveCall*& call);
  void on_stall(Rank peer, std::uint32_t operation, Time now);
  // The stream is stalled, and its writer has ended. The data of the peer is dropped from now on,
  // so that the last frames behind it can be read: they may say why the peer ended. Call on_data()
  // again.
  void on_hang_up(Rank peer) { at(peer).drops = true; }
  // `started`: from the frame's header. Returns why the stream must be closed; empty: it stays.
  [[nodiscard]] std::string on_control(Rank peer, std::uint32_t started, const ControlFrame& frame);
  // The next frame other than data. It goes before further data.
  bool poll_control(Rank& peer, ControlFrame& frame);
  [[nodiscard]] bool has_control() const { return !control_.empty(); }

  // Data.
  struct Ready {
    CollectiveCall* call;
    std::uint32_t send;
  };
  // A send of the call has bytes that may leave.
  void add_ready(CollectiveCall& call, std::uint32_t send, Rank target);
  // The send whose bytes come next on the stream to the peer. None: there is none now.
  // `has_bytes(call, send)`: whether a send still has bytes that may leave.
  template <class HasBytes>
  [[nodiscard]] std::optional<Ready> next_data(Rank peer, const HasBytes& has_bytes);
  // The header of a data frame of the call.
  [[nodiscard]] DataFrame header(const CollectiveCall& call, std::uint32_t arrival,
                                 std::uint32_t length) const {
    return {call.number, arrival, length, call.signature, started_};
  }

  // Time.
  void on_timer(Time now);
  // When on_timer() is to be called. None: nothing waits.
  [[nodiscard]] std::optional<Time> next_timer() const;

  // Roll call.
  void call_roll();
  // Breaks the communicator if a connected rank has said nothing since. `limit`: of the call that
  // is late.
  void fail_missing(Duration limit);

  // Failure.
  // Breaks the communicator, unless it is broken.
  // All ranks get the code, the text and the rank to blame.
  void fail(const Error& why);
  // Something of the call other than its streams has lost the peer. If the peer gave up or is gone,
  // its stream is about to say why: it died, it left, or it failed because of another rank. If the
  // stream says nothing, the communicator fails with this error.
  void on_lost(CollectiveCall& call, Rank peer, const Error& error, Time now);
  // Breaks the communicator because this rank leaves. No rank is to blame.
  void leave();
  // Why nothing can be started any more; none while calls can.
  [[nodiscard]] const std::optional<Error>& broken() const { return broken_; }

  // Appends the state that decides what this end does next: equal strings mean equal behaviour, if
  // the calls that run are equal too. Requires that poll_control() and poll_over() returned false.
  void encode_state(std::string& out) const;

 private:
  static constexpr std::uint32_t kMostOperations = ~std::uint32_t{0};
  // The last calls are kept for ranks that ask about them.
  static constexpr std::size_t kPast = 64;

  // An answer, and how often its rank was asked since. One that was asked twice and did not answer
  // may have stopped since the answer, which then says nothing any more.
  struct Answered {
    AnswerFrame frame;
    int asked = 0;
    [[nodiscard]] bool holds() const { return asked < 2; }
    void ask() { asked += holds() ? 1 : 0; }
  };
  struct Peer {
    bool connected = false;
    bool left = false;                    // it said that it leaves
    bool drops = false;                   // its data is worthless
    bool silent = false;                  // it has said nothing since the roll call
    std::uint32_t started = 0;            // the last operation that it is known to have started
    std::uint32_t stalled_operation = 0;  // of the frame that waits; 0: none
    Time stalled_at;                      // since when, or when the peer was last told
    std::vector<Ready> ready;
    std::vector<Answered> answers;       // the last one for each call that runs
    std::optional<Answered> not_called;  // the last one about a call that it had not made
    [[nodiscard]] std::vector<Answered>::iterator answer_about(std::uint32_t operation) {
      return std::ranges::find(answers, operation,
                               [](const Answered& a) { return a.frame.operation; });
    }
  };
  struct Past {
    std::uint32_t number = 0;
    std::uint64_t signature = 0;
    std::string text;
  };
  struct Over {
    CollectiveCall* call;
    Status status;
  };
  struct Addressed {
    Rank to;
    ControlFrame frame;
  };
  // What this rank called as an operation.
  struct Called {
    bool known = false;
    std::uint64_t signature = 0;
    const std::string* text = nullptr;
    const CollectiveCall* running = nullptr;
  };

  [[nodiscard]] Peer& at(Rank rank) { return peers_[rank.index()]; }
  [[nodiscard]] const Peer& at(Rank rank) const { return peers_[rank.index()]; }
  void say(Rank to, ControlFrame frame) { control_.push_back({to, std::move(frame)}); }
  [[nodiscard]] Called called_as(std::uint32_t number) const;
  // Ends all calls with broken_, and sends `last` to all connected ranks.
  void end_all(const ControlFrame& last);
  [[nodiscard]] bool may_send(const CollectiveCall& call, Rank peer) const;

  // Questions.
  void ask_peers(CollectiveCall& call);
  void answer(Rank peer, const AskFrame& ask);
  // What this rank says about a call that it runs, and about one that it has not made.
  [[nodiscard]] AnswerFrame answer_about(const CollectiveCall& call) const;
  [[nodiscard]] AnswerFrame not_called(std::uint32_t operation) const;
  void take_answer(Rank peer, const AnswerFrame& frame);
  void report_difference(Rank peer, std::uint32_t number, const std::string& ours,
                         const std::string& theirs);
  void tell_stalled(Time now);
  [[nodiscard]] std::optional<Rank> silent_rank() const;
  // The last rank in the chain of ranks that the call waits for, as far as is known.
  [[nodiscard]] std::optional<Rank> culprit_of(const CollectiveCall& call) const;
  // This rank waits for the last rank in the chain itself: that one does not say that it waits for
  // another, or it is known that its data does not get here.
  [[nodiscard]] bool is_last_in_chain(const CollectiveCall& call) const;
  // The call's deadline, or a moment before it.
  [[nodiscard]] Time gives_up_at(const CollectiveCall& call) const;
  // Whether the call's deadline was put off because this rank comes late.
  [[nodiscard]] static bool postpones(CollectiveCall& call, Time now);
  // The peer's last answer about the call; null: there is none that holds.
  [[nodiscard]] const AnswerFrame* answer_of(Rank peer, const CollectiveCall& call) const;
  // The rank to blame if the call takes too long. None: something between ranks is to blame, or
  // nobody is known.
  [[nodiscard]] std::optional<int> blamed_for(const CollectiveCall& call) const;
  [[nodiscard]] Error late_error(const CollectiveCall& call) const;
  [[nodiscard]] std::string late_text(const CollectiveCall& call) const;

  Rank rank_;
  std::vector<Peer> peers_;  // [rank]
  std::uint32_t started_ = 0;
  std::optional<Rank> reaching_;
  std::vector<CollectiveCall*> running_;
  std::array<Past, kPast> past_;
  std::vector<Over> over_;
  std::deque<Addressed> control_;
  std::optional<Error> broken_;
};

template <class HasBytes>
std::optional<Collective::Ready> Collective::next_data(Rank peer, const HasBytes& has_bytes) {
  std::vector<Ready>& ready = at(peer).ready;
  std::erase_if(ready, [&](const Ready& r) { return !has_bytes(*r.call, r.send); });
  const auto before = [](const Ready& a, const Ready& b) {
    return std::tuple(a.call->priority, a.call->number, a.send) <
           std::tuple(b.call->priority, b.call->number, b.send);
  };
  const Ready* best = nullptr;
  for (const Ready& r : ready) {
    if (best != nullptr && !before(r, *best)) continue;
    if (may_send(*r.call, peer)) best = &r;
  }
  if (best == nullptr) return std::nullopt;
  return *best;
}

}  // namespace thalweg::proto
