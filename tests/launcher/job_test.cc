#include "launcher/job.h"

#include "tests/launcher/support.h"

#include <gmock/gmock.h>

#include <csignal>

namespace distrun::launcher {
namespace {

using namespace std::chrono_literals;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;

constexpr char kFresh[] = "11111111-2222-4333-8444-555555555555";

// A job of the program /bin/true on a machine of our making.
class JobRules : public ::testing::Test {
 protected:
  JobRules() {
    machine_.cpus = {0, 1, 2, 3};
    machine_.working_folder = "/home/me/here";
    machine_.fresh_id = kFresh;
    machine_.gpus.found = "nowhere";
  }

  Result<Job> make(std::vector<std::string_view> arguments) {
    arguments.push_back("/bin/true");
    const auto options = parse_options(arguments, environment_);
    EXPECT_TRUE(options) << options.error().detail;
    if (!options) return options.error();
    return make_job(*options, machine_, environment_);
  }
  Job job(const std::vector<std::string_view>& arguments) {
    auto result = make(arguments);
    EXPECT_TRUE(result) << result.error().detail;
    return result ? std::move(*result) : Job{};
  }
  agent::Spec spec(const std::vector<std::string_view>& arguments) { return job(arguments).spec; }
  Error refusal(const std::vector<std::string_view>& arguments) {
    auto result = make(arguments);
    EXPECT_FALSE(result) << "taken";
    return result ? Error{Errc::protocol, ""} : result.error();
  }

  Machine machine_;
  Environment environment_;
};

TEST_F(JobRules, APlainJobIsOneWorkerOnAPrivatePort) {
  const Job plain = job({});
  EXPECT_THAT(plain.spec.command.argv, ElementsAre("/bin/true"));
  EXPECT_EQ(plain.spec.nproc, 1);
  EXPECT_EQ(plain.spec.role, "default");
  EXPECT_EQ(plain.spec.max_restarts, 0);
  EXPECT_EQ(plain.spec.grace, Duration(30s));
  EXPECT_EQ(plain.spec.run_id, kFresh);
  EXPECT_EQ(plain.spec.master_addr, "127.0.0.1");
  EXPECT_EQ(plain.spec.master_port, 0);
  EXPECT_THAT(plain.spec.stop_signals, ElementsAre(SIGTERM, SIGINT, SIGHUP, SIGQUIT));
  EXPECT_EQ(plain.spec.log.base_dir, "");
  EXPECT_THAT(plain.spec.cpus, IsEmpty());
  EXPECT_THAT(plain.warnings, IsEmpty());
}

// --- what cannot be
// --------------------------------------------------------------------------------

TEST_F(JobRules, SeveralNodesNeedAPlaceToMeet) {
  EXPECT_THAT(refusal({"--nnodes", "2"}).detail, HasSubstr("--master-addr"));
  EXPECT_THAT(refusal({"--nnodes", "2", "--rdzv-backend", "c10d"}).detail,
              HasSubstr("--rdzv-endpoint HOST[:PORT], the same on all of them"));
}

TEST_F(JobRules, StaticHasAFixedNumberOfNodesAndARankForEach) {
  EXPECT_THAT(refusal({"--nnodes", "1:4", "--master-addr", "h1"}).detail,
              HasSubstr("with static the number of nodes is fixed"));
  EXPECT_THAT(refusal({"--nnodes", "2", "--node-rank", "2", "--master-addr", "h1"}).detail,
              HasSubstr("node ranks 0 to 1"));
  const Job made = job({"--nnodes", "2", "--node-rank", "1", "--master-addr", "h1"});
  ASSERT_TRUE(made.nodes);
  EXPECT_EQ(made.nodes->endpoint, (rendezvous::Contact{"h1", 29500}));
  EXPECT_EQ(made.nodes->node_rank, NodeRank(1));
  EXPECT_TRUE(made.nodes->terms.fixed_ranks);
  EXPECT_EQ(made.spec.master_port, 0) << "each round's store has a fresh port";
}

TEST_F(JobRules, NodesOfC10dNumberThemselves) {
  const Job made = job({"--nnodes", "2:4", "--rdzv-backend", "c10d", "--rdzv-endpoint", "h1",
                        "--rdzv-id", "seven", "--max-restarts", "3"});
  ASSERT_TRUE(made.nodes);
  EXPECT_EQ(made.nodes->endpoint, (rendezvous::Contact{"h1", 29400}));
  EXPECT_EQ(made.nodes->node_rank, std::nullopt);
  EXPECT_EQ(made.nodes->job, "seven");
  EXPECT_EQ(made.nodes->terms.min_nodes, 2);
  EXPECT_EQ(made.nodes->terms.max_nodes, 4);
  EXPECT_EQ(made.nodes->terms.max_restarts, 3);
  EXPECT_EQ(made.nodes->terms.silence(), 3s);
}

TEST_F(JobRules, SettingsOfTheRendezvousReachIt) {
  const Job made =
      job({"--nnodes", "1:2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "h1:7",
           "--start-timeout", "50", "--rdzv-conf",
           "last_call_timeout=5,rejoin_wait=2.5,takeover=any,takeover_timeout=8,reattach_timeout=9,"
           "keep_alive_interval=0.5,keep_alive_max_attempt=4,is_host=false"});
  ASSERT_TRUE(made.nodes);
  EXPECT_EQ(made.nodes->start_timeout, 50s);
  EXPECT_EQ(made.nodes->terms.join_timeout, 50s);
  EXPECT_EQ(made.nodes->terms.last_call, 5s);
  EXPECT_EQ(made.nodes->terms.rejoin_wait, 2500ms);
  EXPECT_EQ(made.nodes->terms.silence(), 2s);
  EXPECT_EQ(made.nodes->patience, 9s);
  EXPECT_EQ(made.nodes->takeover, rendezvous::TakeoverRule::any);
  EXPECT_EQ(made.nodes->takeover_patience, std::chrono::seconds(8));
  EXPECT_EQ(made.nodes->is_host, false);
}

TEST_F(JobRules, AFreshNameIsNoNameForSeveralNodes) {
  EXPECT_THAT(
      refusal({"--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "h1", "--rdzv-id="})
          .detail,
      HasSubstr("give all nodes the same"));
}

TEST_F(JobRules, TheTokenIsNotForTheWorkers) {
  environment_["DISTRUN_TOKEN"] = "secret";
  const Job made = job({"--nnodes", "2", "--master-addr", "h1"});
  EXPECT_EQ(made.nodes->token, "secret");
  EXPECT_THAT(made.spec.environment, Not(Contains(Pair("DISTRUN_TOKEN", "secret"))));
}

TEST_F(JobRules, AllThatMeansOneNodeIsTaken) {
  for (const char* nnodes : {"--nnodes=1", "--nnodes=1:1"}) {
    for (const char* backend : {"--rdzv-backend=static", "--rdzv-backend=c10d"}) {
      EXPECT_TRUE(make({nnodes, backend}));
      EXPECT_TRUE(make({nnodes, backend, "--standalone"}));
    }
  }
}

TEST_F(JobRules, LogsSpecsIsRefused) {
  EXPECT_EQ(refusal({"--logs-specs", "mine"}).code, Errc::unsupported);
}

TEST_F(JobRules, ModuleAndNoPythonExcludeEachOther) {
  EXPECT_THAT(refusal({"-m", "--no-python"}).detail, HasSubstr("--module and --no-python"));
}

TEST_F(JobRules, VerboseAndQuietExcludeEachOther) {
  EXPECT_EQ(refusal({"-v", "-q"}).code, Errc::invalid_argument);
}

TEST_F(JobRules, ANodeRankThatOneNodeCannotHaveIsRefusedWhereItWouldCount) {
  EXPECT_THAT(refusal({"--node-rank", "1"}).detail, HasSubstr("only node rank 0"));
  EXPECT_TRUE(make({"--node-rank", "1", "--standalone"}));
  EXPECT_TRUE(make({"--node-rank", "1", "--rdzv-backend", "c10d"}));
}

TEST_F(JobRules, PluginsThatOnlyWatchAreAWarning) {
  EXPECT_THAT(job({"--event-log-handler", "scuba"}).warnings, ElementsAre(HasSubstr("'scuba'")));
  EXPECT_THAT(job({"--event-log-handler", "console"}).warnings, ElementsAre(HasSubstr("json")));
}

TEST_F(JobRules, ATargetThatDoesNotExistIsToldBeforeAnythingStarts) {
  const std::string_view arguments[] = {"no/such.py"};
  const auto options = parse_options(arguments, environment_);
  const auto result = make_job(*options, machine_, environment_);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error(), (Error{Errc::not_found, "not found: no/such.py in /home/me/here"}));
}

// --- how many workers
// ------------------------------------------------------------------------------

TEST_F(JobRules, CpuIsOnePerUsableCpu) {
  EXPECT_EQ(spec({"--nproc-per-node", "cpu"}).nproc, 4);
  machine_.cpu_quota = 2.5;
  EXPECT_EQ(spec({"--nproc-per-node", "cpu"}).nproc, 3);
}

TEST_F(JobRules, GpuIsOnePerGpu) {
  machine_.gpus.count = 8;
  EXPECT_EQ(spec({"--nproc-per-node", "gpu"}).nproc, 8);
}

TEST_F(JobRules, GpuWithoutGpusSaysWhereWasLooked) {
  EXPECT_EQ(refusal({"--nproc-per-node", "gpu"}).detail,
            "--nproc-per-node: gpu: no GPU found; nowhere");
}

TEST_F(JobRules, AutoIsGpusAndElseCpus) {
  EXPECT_EQ(spec({"--nproc-per-node", "auto"}).nproc, 4);
  machine_.gpus.count = 2;
  EXPECT_EQ(spec({"--nproc-per-node", "auto"}).nproc, 2);
}

TEST_F(JobRules, MigSlicesAreSeveralDevicesOnlyForVirtualRanks) {
  machine_.gpus.count = 1;
  machine_.gpus.mig_slices = 3;
  environment_["CUDA_VISIBLE_DEVICES"] = "MIG-a,MIG-b,MIG-c";
  EXPECT_EQ(spec({"--nproc-per-node", "gpu"}).nproc, 1);
  EXPECT_EQ(spec({"--nproc-per-node", "gpu", "--virtual-local-rank"}).nproc, 3);
}

TEST_F(JobRules, TheMachineIsLookedAtOnlyForWhatIsAsked) {
  const auto needs = [](std::vector<std::string_view> arguments) {
    arguments.push_back("x.py");
    const Wanted w = wanted(*parse_options(arguments, {}));
    return std::string(w.cpus ? "c" : "") + (w.gpus ? "g" : "") + (w.topology ? "t" : "");
  };
  EXPECT_EQ(needs({"--nproc-per-node", "4"}), "");
  EXPECT_EQ(needs({"--nproc-per-node", "cpu"}), "c");
  EXPECT_EQ(needs({"--nproc-per-node", "gpu"}), "g");
  EXPECT_EQ(needs({"--nproc-per-node", "auto"}), "cg");
  EXPECT_EQ(needs({"--nproc-per-node", "4", "--numa-binding", "node"}), "cgt");
}

TEST_F(JobRules, NumaBindingGivesEachWorkerItsCpus) {
  machine_.topology.cpus = {{0, 0, 0, 0, 0}, {1, 1, 0, 1, 1}};
  EXPECT_THAT(spec({"--nproc-per-node", "2", "--numa-binding", "node"}).cpus,
              ElementsAre(ElementsAre(0), ElementsAre(1)));
}

TEST_F(JobRules, NumaBindingThatCannotBeIsRefusedByName) {
  EXPECT_THAT(refusal({"--numa-binding", "node"}).detail, HasSubstr("--numa-binding: "));
}

TEST_F(JobRules, VirtualRanksNeedADeviceEach) {
  environment_["CUDA_VISIBLE_DEVICES"] = "0,1";
  EXPECT_TRUE(spec({"--nproc-per-node", "2", "--virtual-local-rank"}).virtual_local_rank);
  EXPECT_THAT(refusal({"--nproc-per-node", "3", "--virtual-local-rank"}).detail,
              HasSubstr("CUDA_VISIBLE_DEVICES"));
  environment_.erase("CUDA_VISIBLE_DEVICES");
  EXPECT_TRUE(make({"--nproc-per-node", "3", "--virtual-local-rank"}));
}

// --- identity
// --------------------------------------------------------------------------------------

TEST_F(JobRules, TheRunIdIsTheUsersIfThereIsOne) {
  EXPECT_EQ(spec({"--rdzv-id", "job7"}).run_id, "job7");
  EXPECT_EQ(spec({"--rdzv-id", "job7", "--standalone"}).run_id, "job7");
}

TEST_F(JobRules, AnEmptyRunIdMeansAFreshOne) {
  EXPECT_EQ(spec({"--rdzv-id="}).run_id, kFresh);
}

TEST_F(JobRules, AJobThatNamesAMeetingPlaceIsCalledNone) {
  EXPECT_EQ(spec({"--master-port", "29500"}).run_id, "none");
  EXPECT_EQ(spec({"--rdzv-endpoint", "localhost:29400"}).run_id, "none");
  EXPECT_EQ(spec({"--rdzv-backend", "c10d"}).run_id, "none");
  EXPECT_EQ(spec({"--rdzv-backend", "c10d", "--standalone"}).run_id, kFresh);
}

TEST_F(JobRules, AnExplicitMasterPortIsTheStores) {
  EXPECT_EQ(spec({"--master-port", "29500"}).master_port, 29500);
  EXPECT_EQ(spec({"--master-port", "29500", "--standalone"}).master_port, 29500);
}

TEST_F(JobRules, TheMasterAddressIsTheMostDefiniteOneGiven) {
  EXPECT_EQ(spec({"--local-addr", "10.0.0.7"}).master_addr, "10.0.0.7");
  EXPECT_EQ(spec({"--local-addr", "10.0.0.7", "--master-addr", "10.0.0.8"}).master_addr,
            "10.0.0.8");
  EXPECT_EQ(spec({"--master-addr", "10.0.0.8", "--rdzv-endpoint", "10.0.0.9"}).master_addr,
            "10.0.0.9");
  EXPECT_EQ(spec({"--master-addr", "localhost"}).master_addr, "127.0.0.1");
}

TEST_F(JobRules, TheEndpointOfStaticIsTheStoresAndThatOfC10dIsNot) {
  const agent::Spec fixed = spec({"--rdzv-endpoint", "10.0.0.9:29400", "--master-port", "1"});
  EXPECT_EQ(fixed.master_addr, "10.0.0.9");
  EXPECT_EQ(fixed.master_port, 29400);
  const agent::Spec c10d = spec({"--rdzv-endpoint", "10.0.0.9:29400", "--rdzv-backend", "c10d"});
  EXPECT_EQ(c10d.master_addr, "127.0.0.1");
  EXPECT_EQ(c10d.master_port, 0);
}

// --- environment
// -----------------------------------------------------------------------------------

TEST_F(JobRules, WorkersInheritTheWholeEnvironment) {
  environment_["HOME"] = "/home/me";
  environment_["PET_ROLE"] = "trainer";
  EXPECT_THAT(spec({}).environment, Contains(Pair("HOME", "/home/me")));
  EXPECT_THAT(spec({}).environment, Contains(Pair("PET_ROLE", "trainer")));
}

TEST_F(JobRules, TheHandledSignalsAreExportedOnce) {
  environment_["TORCHELASTIC_SIGNALS_TO_HANDLE"] = "old";
  EXPECT_THAT(spec({"--signals-to-handle", "SIGTERM"}).environment,
              Contains(Pair("TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM")).Times(1));
  EXPECT_THAT(spec({}).environment, Not(Contains(Pair("TORCHELASTIC_SIGNALS_TO_HANDLE", "old"))));
}

TEST_F(JobRules, TheOpenMpRuleIsANoteAndNoWarning) {
  const Job quiet = job({"--nproc-per-node", "2"});
  EXPECT_THAT(quiet.warnings, IsEmpty());
  EXPECT_THAT(quiet.notes, ElementsAre(HasSubstr("OMP_NUM_THREADS")));
  environment_["OMP_NUM_THREADS"] = "8";
  EXPECT_THAT(job({"--nproc-per-node", "2"}).notes, IsEmpty());
}

// --- stopping
// --------------------------------------------------------------------------------------

TEST_F(JobRules, TheGraceIsTheFlagThenTheVariableThenThirtySeconds) {
  environment_["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] = "7";
  EXPECT_EQ(spec({}).grace, Duration(7s));
  EXPECT_EQ(spec({"--shutdown-timeout", "600"}).grace, Duration(600s));
  environment_["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] = "soon";
  EXPECT_THAT(refusal({}).detail, HasSubstr("TORCH_ELASTIC_SHUTDOWN_TIMEOUT: "));
  EXPECT_EQ(spec({"--shutdown-timeout", "600"}).grace, Duration(600s));
}

TEST_F(JobRules, ASignalThatMeansNothingIsAWarning) {
  const Job odd = job({"--signals-to-handle", "SIGTERM,SIGBREAK"});
  EXPECT_THAT(odd.spec.stop_signals, ElementsAre(SIGTERM));
  EXPECT_THAT(odd.warnings, ElementsAre(HasSubstr("SIGBREAK")));
}

// --- output
// ----------------------------------------------------------------------------------------

TEST_F(JobRules, ARelativeLogFolderIsMadeAbsolute) {
  EXPECT_EQ(spec({"--log-dir", "logs"}).log.base_dir, "/home/me/here/logs");
  EXPECT_EQ(spec({"--log-dir", "../logs/."}).log.base_dir, "/home/me/logs/");
  EXPECT_EQ(spec({"--log-dir", "/dev/null"}).log.base_dir, "/dev/null");
}

TEST_F(JobRules, StreamsHaveOneEntryPerWorker) {
  const agent::LogSpec log = spec({"--nproc-per-node", "3", "-r", "3", "-t", "1:1"}).log;
  EXPECT_THAT(log.redirects, ElementsAre(agent::StreamSet{true, true}, agent::StreamSet{true, true},
                                         agent::StreamSet{true, true}));
  EXPECT_THAT(log.tee,
              ElementsAre(agent::StreamSet{}, agent::StreamSet{true, false}, agent::StreamSet{}));
  EXPECT_THAT(log.on_console, ElementsAre(true, true, true));
}

TEST_F(JobRules, TheRanksFilterKeepsTheOthersOffTheConsole) {
  EXPECT_THAT(spec({"--nproc-per-node", "3", "--local-ranks-filter", "0,2"}).log.on_console,
              ElementsAre(true, false, true));
}

TEST_F(JobRules, ALocalRankThatDoesNotExistIsAWarning) {
  const Job odd = job({"-r", "5:1", "-t", "6:1", "--local-ranks-filter", "0,7"});
  EXPECT_THAT(odd.warnings,
              ElementsAre(HasSubstr("--redirects: there is no local rank 5"),
                          HasSubstr("--tee: there is no local rank 6"),
                          HasSubstr("--local-ranks-filter: there is no local rank 7")));
}

TEST_F(JobRules, ThePrefixTemplateComesFromTorchrunsVariable) {
  environment_["TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"] = "${rank}> ";
  EXPECT_EQ(spec({}).log.prefix_template, "${rank}> ");
}

TEST_F(JobRules, ASingleWorkerOnATerminalHasTheTerminal) {
  EXPECT_FALSE(job({}).inherit_console);
  machine_.terminal = true;
  EXPECT_TRUE(job({}).inherit_console);
  EXPECT_FALSE(job({"--nproc-per-node", "2"}).inherit_console);
  EXPECT_FALSE(job({"--console", "lines"}).inherit_console);
  EXPECT_TRUE(job({"--nproc-per-node", "2", "--console", "inherit"}).inherit_console);
}

TEST_F(JobRules, TheLogLevelIsTheFlagThenTheVariableThenInfo) {
  EXPECT_EQ(job({}).log.level, log::Level::info);
  environment_["LOGLEVEL"] = "ERROR";
  EXPECT_EQ(job({}).log.level, log::Level::error);
  EXPECT_EQ(job({"-v"}).log.level, log::Level::debug);
  EXPECT_EQ(job({"-q"}).log.level, log::Level::warning);
  environment_["LOGLEVEL"] = "chatty";
  EXPECT_EQ(job({}).log.level, log::Level::info);
  EXPECT_EQ(job({"--log-format", "json"}).log.format, log::Format::json);
}

// ---- etcd --------------------------------------------------------------------------------------

TEST_F(JobRules, ThroughEtcdAllEndpointsAreTriedBelowThePrefixOfTheJob) {
  const Job many = job({"--nnodes", "2:3", "--rdzv-backend", "etcd", "--rdzv-endpoint",
                        "e1,[fd77::1]:2380,10.0.0.3:2381", "--rdzv-id", "train"});
  ASSERT_TRUE(many.nodes && many.nodes->etcd);
  EXPECT_EQ(to_text(many.nodes->etcd->endpoints), "e1:2379,[fd77::1]:2380,10.0.0.3:2381");
  EXPECT_EQ(many.nodes->etcd->prefix, "/distrun/runs/train");
  EXPECT_EQ(many.nodes->etcd->security, rendezvous::etcd::Security{});
  EXPECT_THAT(many.warnings, IsEmpty());
}

TEST_F(JobRules, EtcdsFilesAndUserAreTakenByEitherNameAndFromTheEnvironment) {
  environment_["ETCDCTL_USER"] = "me";
  environment_["ETCDCTL_PASSWORD"] = "secret";
  const Job many =
      job({"--nnodes", "2", "--rdzv-backend", "etcd-v2", "--rdzv-endpoint", "e1", "--rdzv-conf",
           "protocol=https,ca_cert=a,cert=b,ssl_cert_key=c,etcd_prefix=/x/"});
  ASSERT_TRUE(many.nodes && many.nodes->etcd);
  const auto& security = many.nodes->etcd->security;
  EXPECT_TRUE(security.tls);
  EXPECT_EQ(security.files, (rendezvous::etcd::TlsFiles{"a", "b", "c"}));
  EXPECT_EQ(security.user, "me");
  EXPECT_EQ(security.password, "secret");
  EXPECT_EQ(many.nodes->etcd->prefix, "/x/none");
  EXPECT_THAT(many.warnings, Contains(HasSubstr("etcd's v3 interface is used")));
  EXPECT_THAT(many.warnings, Contains(HasSubstr("--rdzv-id is missing")));
}

TEST_F(JobRules, WhatCannotBeWithEtcdIsRefused) {
  const std::pair<std::vector<std::string_view>, const char*> cases[] = {
      {{"--rdzv-backend", "etcd"}, "--rdzv-endpoint H1:2379"},
      {{"--rdzv-backend", "c10d", "--rdzv-endpoint", "a,b"}, "several endpoints"},
      {{"--rdzv-backend", "etcd", "--rdzv-endpoint", "a", "--rdzv-conf", "is_host=1"}, "is_host"},
      {{"--rdzv-backend", "etcd", "--rdzv-endpoint", "a", "--rdzv-conf", "ca_cert=x"},
       "protocol=https"},
      {{"--rdzv-backend", "etcd", "--rdzv-endpoint", "a", "--rdzv-conf", "user=me"},
       "ETCDCTL_PASSWORD"},
      {{"--rdzv-backend", "etcd", "--rdzv-endpoint", "a:0"}, "port 0"},
  };
  for (const auto& [options, why] : cases) {
    std::vector<std::string_view> all{"--nnodes", "2"};
    all.insert(all.end(), options.begin(), options.end());
    EXPECT_THAT(refusal(all).detail, HasSubstr(why));
  }
}

}  // namespace
}  // namespace distrun::launcher
