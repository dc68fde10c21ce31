// Quorum: may this coordinator seal a round, or would there be two jobs?
//
// A coordinator that an agent hosts can be cut off together with some members while the others find
// a new one.  Each of the two may go on only if it holds
//
//   - more than half of the members of the last sealed round that have not left for good, or
//   - exactly half of them, the node that hosted the coordinator of that round among them.
//
// Two sets of members with that property always share a member, and a member is held by one
// coordinator at a time: it answers pings, each answer counts from when the ping was *sent*, for
// less time than the member waits in silence before it turns to another (member.h).  So two
// coordinators never hold a quorum at one time, whatever the network does to messages between them.
//
// A member counts as the process that it is (NodeId), whether it knows of the round or not: if its
// connection broke before the Welcome came, it is back as a newcomer, and one of the coordinator
// that sealed the round.  That is as safe.  What is exclusive is the answer to a ping, and a member
// that knows no round, or an older one, turns away no sooner than any other.  Whoever took over was
// not there when the round was sealed, and counts only nodes that show that they hold it: some of
// the same members.  And who got a newer round elsewhere shows that here when it comes back; this
// coordinator refuses it, and acts no more.
//
// One more thing is needed.  A round that has just been sealed is not known to its members yet; if
// the coordinator is lost now, others may find a quorum of the round before.  So until members that
// are a quorum of that older round have shown that they know the new one, its coordinator acts only
// with a quorum of both (Rendezvous::Electorate).
//
// A coordinator that is the only one there can be (distrund) needs none of this.
#pragma once

#include <string_view>

namespace distrun::rendezvous {

enum class TakeoverRule {
  majority,  // as above
  any,       // with any number: a job cut in two becomes two jobs.  For who knows that no network
             // between his nodes can fail while the nodes live.
  never,     // the job ends with its coordinator
};
std::string_view to_string(TakeoverRule rule);

// `members`: of the last sealed round; `left`: of these, gone for good; `held`: of these, held now;
// `incumbent_held`: the node that decides a draw is one of them.
bool has_quorum(int members, int left, int held, bool incumbent_held);

}  // namespace distrun::rendezvous
