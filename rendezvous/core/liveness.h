// Liveness: who answers.  Pings all members at once every `beat`; a member that has not been heard
// for `silence` is silent.  All by the owner's own clock.
//
// Who has not been heard for one and a half beats is asked four times a beat.  On a bad line a lost
// packet holds up all that follow it until it is sent again, which TCP does late, or at once when a
// further packet gets through: three pings in three seconds would lose a healthy node every hour.
//
// If the owner itself was paused (a deadline comes late by more than half a beat), that time is not
// counted as anybody's silence: their answers may wait unread.  A hold (held()), on the other hand,
// counts from when the answered ping was *sent* and is not extended by anything, because the member
// may turn to another coordinator a fixed time after that.
#pragma once

#include "runtime/base/ids.h"
#include "runtime/base/time.h"

#include <array>
#include <cstdint>
#include <list>
#include <optional>
#include <unordered_map>
#include <vector>

namespace distrun::rendezvous {

using SessionId = Id<struct SessionTag>;  // a connection; the edge never gives one twice

class Liveness {
 public:
  Liveness(Duration beat, Duration silence) : beat_(beat), silence_(silence) {}

  void add(SessionId session, TimePoint now);
  void remove(SessionId session);
  // It said something.
  void heard(SessionId session, TimePoint now);
  // It answered that ping.  Numbers that were never sent, or long ago, count as heard only.
  void answered(SessionId session, std::uint64_t ping, TimePoint now);

  // First of all for each event: forgives a pause of our own.
  void awake(TimePoint now);
  // Such a pause ended less than `silence` ago: members may have hung up on us meanwhile, and come
  // again behind what waits to be read.
  bool just_awake(TimePoint now) const { return woke_at_ && now - *woke_at_ < silence_; }
  // The member that has been silent for longest, if for too long.
  std::optional<SessionId> silent(TimePoint now) const;
  // A new ping's number for all, if one is due.
  std::optional<std::uint64_t> ping(TimePoint now);
  // Whom to ask again between two beats; empty: nobody, or not yet.
  std::vector<SessionId> doubted(TimePoint now);
  // One beside the beat, to whomever the owner likes.
  std::uint64_t extra_ping(TimePoint now);
  // Whether it has answered a ping, and cannot have turned to another coordinator since.
  bool held(SessionId session, TimePoint now) const;
  TimePoint last_heard(SessionId session) const;

  // nullopt: nobody is watched.
  std::optional<TimePoint> next_deadline() const;

 private:
  struct Watched {
    SessionId session;
    TimePoint heard;
    std::optional<TimePoint> held_from;  // when the latest ping that it answered was sent
  };
  using Order = std::list<Watched>;

  std::optional<TimePoint> next_doubt() const;

  Duration beat_;
  Duration silence_;
  Order order_;  // longest silent first
  std::unordered_map<int, Order::iterator> watched_;
  std::uint64_t last_ping_ = 0;
  TimePoint next_ping_{};
  TimePoint next_doubt_{};  // not before
  std::optional<TimePoint> woke_at_;
  std::array<TimePoint, 1024> sent_{};  // of the latest pings, by number
};

}  // namespace distrun::rendezvous
