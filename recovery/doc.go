// Package recovery keeps a run alive when its processes die: it decides which servers serve, and
// from which step. Begin with Coordinator, and with the package comment of recovery/roster, which
// has the rules.
//
// The Coordinator is the shell around the pure core recovery/roster. It watches which servers are
// present, asks for the newest checkpoint, and puts the views that the core decides on into etcd.
// Any number of coordinators may run; one of them leads. Everything that a coordinator must not
// forget is in etcd, so its death loses nothing.
//
// # What a run survives
//
// The first column says what happens, the second what then holds, and the third which tests show
// it. An indented row is a special case of the row above it.
//
//	happens                    holds                                                  shown by
//	-------                    -----                                                  --------
//	a server dies              When it is back, a new view begins a new line: all     TestAServerThatDiesIsRestoredFromTheNewestCheckpoint,
//	                           shards restore the newest full checkpoint, and the     roster: checkpoint.txt
//	                           steps since then are computed again.
//	  Config.Roster.Replicas   A view on the same line leaves the server out at once. roster: chains.txt, shard: chain/*.txt,
//	                           No released step is lost, steps go on with the other   TestAServerOfChainsThatDiesIsOutOfTheViewAtOnceAndABrokenConnectionIsNoDeath,
//	                           replicas, and the server comes in again at the tail.   sim: TestNoSeedBreaksAPromiseOfAChain,
//	                                                                                  TestServersOfChainsDieAndTheModelIsTheSame
//	  a head and a worker      No released step is lost. The open step is decided     shard: chain/worker.txt,
//	                           anew, without the worker if it does not come back.     sim: TestAStepWhoseHeadAndWorkerDieIsDecidedAnew
//	  all replicas of a shard  As without replicas.                                   roster: chains.txt
//	  the only other replica   The shard counts as lost, as if no replica were left.  shard: chain/joiner.txt, roster: chains.txt
//	  is still catching up
//	  it comes in again, but   Steps wait for it once it comes no closer, until it    shard: TestAReplicaCatchesUpHoweverFarOrSlow,
//	  is slow or far away      has caught up.                                         TestAReplicaFarFromItsHeadCatchesUp
//	  it hangs                 It is taken for dead after two seconds, fenced by its  shard: chain/hang.txt,
//	                           chains, and taken in again.                            TestAServerOfChainsThatIsSilentIsOutOfTheView
//	  Config.Roster.Copies,    Its shard falls back to the newest copy of the next    roster: copies.txt,
//	  and it heads a shard     replica. Fewer released steps are lost than lie        TestWithCopiesALineEndsWithAHead,
//	                           between two copies. The other shards keep what they    shard: TestTheDeathOfAHeadCostsFewerStepsThanLieBetweenTwoCopies,
//	                           have.                                                  sim: TestAShardWhoseHeadDiesFallsBackToACopy
//	  Config.Roster.           No released step is lost. If the head and the next of  roster: next.txt, shard: chain/next.txt,
//	  NextAnswers              a shard are gone together, it falls back by at most    sim: TestNoSeedBreaksAPromiseWhereTheNextAnswers,
//	                           two released steps, and the other shards keep what     TestHeadAndNextThatDieTogetherBeginALine
//	                           they have.
//	  Config.Roster.Partial    Only the chunks of its shard go back, each to its      sim: TestAPartialRestoreIsTheLossOfTheLostChunksAlone,
//	                           newest saved value. The other shards keep theirs, and  TestNoSeedBreaksAPromise,
//	                           no step is taken back.                                 roster: partial.txt
//	  its state is outside the The line goes on with what its next life finds there,  sim: TestServersThatFindTheirStateDoNotChangeTheModel,
//	  process                  and no step is taken back, whoever dies with it. A     TestAServerThatFindsItsStateChangesNothing,
//	                           torn or foreign state is not used.                     roster: outside.txt
//	  Config.Roster.Replicas,  A view on the same line leaves it out while it still   roster: leaving.txt,
//	  and it has notice        lives, as soon as other servers have everything.       TestServersThatHaveNoticeTakeNoStepBack
//	  Replicas and Partial,    A new line keeps everything that is left. Only the     roster: gold_chains.txt, gold_alone.txt,
//	  and nobody has a shard   lost shard goes back, to its newest saved values.      sim: TestNoSeedBreaksAPromiseOfGold,
//	  any more                 Missing replicas come in again behind whoever has a    TestGoldBringsBackAloneWhatNobodyHas
//	                           shard.
//	  head and tail, server    What is left in memory is used first, then what was    TestGoldTakesNothingBackWhereMemoryIsLeft,
//	  and coordinator, or all  saved last. No released step is lost while the shard   TestGoldBringsBackAloneWhatNobodyHas,
//	  servers together         is anywhere.                                           TestGoldGoesOnFromWhatWasSavedWhereNothingIsLeft,
//	                                                                                  sim: TestDeathsThatMeetDoNotChangeTheModel
//	  Config.Roster.Chooses    The number of replicas changes by a new line that      roster: chosen.txt,
//	                           keeps everything, when all servers are present.        sim: TestNoSeedBreaksAPromiseWhileReplicasAreChosen
//	  Config.Roster.MoveAfter, Its shards come back on the servers that are left, as  roster: moved.txt, moved_chains.txt,
//	  and it stays away        above, and missing replicas are made anew. When the    TestEveryShardComesHome,
//	                           server is back, its shards return to it, on the line   TestNobodyIsWaitedForLongerThanSaid,
//	                           that goes on.                                          sim: TestNoSeedBreaksAPromiseWhileShardsMove,
//	                                                                                  TestAShardComesHomeWithItsServer,
//	                                                                                  TestAShardThatMovesAndComesBackChangesNothing,
//	                                                                                  TestServersOfChainsThatStayAwayDoNotChangeTheModel,
//	                                                                                  TestAServerThatNeverReturnsIsNotWaitedFor
//	two servers do not reach   A view leaves one of them out, as if it had died,      roster: apart.txt, TestHostsThatAreCutOff,
//	each other                 until they reach each other again; but only if it can  sim: TestServersThatNeverMeetAgainDoNotChangeTheModel
//	                           be spared.
//	a server hangs until its   As if it had died, unless                              roster: lapse.txt
//	lease lapses               Config.Roster.LapsesForgiven.
//	every server dies          As for one server, in one view.                        roster: checkpoint.txt
//	every process dies         A new start goes on from the view in etcd. If etcd is  TestARestartedCoordinatorContinuesFromTheViewInEtcd,
//	                           gone too, it goes on from the newest checkpoint.       roster: nothing_saved.txt
//	the coordinator dies       Training goes on in the current view. The next         TestTheNextCoordinatorTakesOverAndSeesWhatItMissed
//	                           coordinator sees what happened meanwhile. On the same  TestACoordinatorDoesNotWaitForADeadOne,
//	                           machine it does not wait for the lease.                etcd: TestNobodyWaitsForACandidateThatIsKnownToBeDead
//	etcd dies and is back      Training goes on in the current view. Leases live on,  TestTheCoordinatorOutlivesARestartOfEtcd,
//	                           and a failover waits.                                  etcd: TestARegistrationSurvivesARestartOfEtcdWithoutALapse
//	etcd loses its data        Processes learn that they are forgotten and end. When  TestARunWhoseEtcdLosesItsDataGoesOnFromItsCheckpoint,
//	                           they are started again, all shards restore the newest  etcd: TestALifeThatEtcdHasLostLearnsOfItAndTouchesNoOther,
//	                           full checkpoint, on a new line.                        etcd: TestAnEtcdThatHasLostItsDataIsNoticed
//	etcd is restored from a    The same. The coordinator stays, but learns that it    TestARunWhoseEtcdIsRestoredFromABackupGoesOnFromItsCheckpoint,
//	backup                     does not lead any more.                                etcd: TestAViewThatEtcdHasLostIsMissed,
//	                                                                                  etcd: TestACandidateLearnsThatEtcdHasGoneBack
//	two coordinators believe   Only the one whose candidacy is still in etcd can put  etcd: TestTheNextCandidateLeadsWhenTheLeaderResigns
//	that they lead             a view.
//	two lives in one place     Only the later one counts, and the earlier one learns  etcd: TestALaterLifeTakesThePlaceAtOnceAndTheEarlierOneLearnsOfIt
//	                           of it.
//	a spare waits, and a       It takes the place, and what it lacks comes from the   TestASpareTakesThePlaceOfAHostThatIsCutOff,
//	server's host is gone      other replicas, or as for a server that dies.          etcd: TestEachEmptyPlaceIsFilledByOneProcess
//	etcd is away for the time  Spares leave the places that seem empty to their       etcd: TestAPlaceThatMayOnlySeemEmptyIsLeftToItsProcess
//	of a lease                 processes, which come back.
//	the store is away          There is no new view until it answers, and this is     TestAFailoverWaitsForTheStore
//	                           logged: a view that names an old checkpoint would lose
//	                           steps.
//
// Workers are not part of a view: the conductor admits them and lets them go (package server). This
// is what else a run survives:
//
//	happens                    holds                                                  shown by
//	-------                    -----                                                  --------
//	a worker dies              Training goes on. Only its uncounted gradient is lost. sim: TestWorkerCrashEndsNothing,
//	                                                                                  conductor: worker.txt,
//	                                                                                  TestNoStepWaitsForTheConnectionOfTheDead
//	a worker's program hangs   It is ended, and its worker starts again.              TestAProgramThatHangsIsStartedAgain,
//	                                                                                  timeout: TestWhatHangsIsNoticedAndNothingElse
//	a GPU hangs                The process whose call does not return ends.           TestARunOutlivesAGPUThatHangs
//	a terminal or a collector  The process goes on, and drops lines. It says how many TestARunGoesOnIfNobodyReadsItsOutput,
//	takes no more output       when the reader is back.                               cli: TestNobodyWaitsForTheReaderOfTheOutput
//	a server is killed, with   The model at the end has the same bits as without the  sim: TestServerCrashDoesNotChangeTheModel
//	bsp                        death.
//	the network delays,        Each push is counted at most once, all shards apply    conductor: TestAfterFaultsEveryRunFinishesAndCountsEachPushOnce,
//	repeats, cuts              the same sets, and the run goes on.                    stream.txt, tickets.txt
//	a byte on the wire is      The server notices it and never holds the bytes. The   transport: TestAFlippedPayloadBitIsCorrupt,
//	wrong                      worker sends them again.                               server: TestDamagedBytesAreNotHeld
//	a byte on disk is wrong    The file is named, and its values are never used. The  ckpt: TestVerifyNoticesEveryWrongByteAndNamesTheFile,
//	                           newest checkpoint that is whole is used.               TestCorruptValuesAreNeverPlaced
//	an operation of the disk   It is an error, or is named as damage, and never       ckpt: TestAnErrorOfTheDiskIsNeverTakenForAnAnswer,
//	fails                      another answer. What is to be kept stays.              TestADiskThatRefusesACompactionChangesNothing
//	a crash while saving       The old checkpoint or the new one is there, whole.     ckpt: TestCrashAfterAnyOperationLeavesTheOldOrTheNewCheckpoint
//	a gradient has NaN or Inf  The worker and the server refuse it, and name the      server: TestAGradientThatIsNotFiniteIsRefused
//	                           tensor.
//	a peer is broken or        Sizes and counts are limited before memory is          transport: TestServersRefuseOversizedMessages,
//	hostile                    allocated. The peer gets a clear error, and the server TestAbsurdMessagesAreRefused,
//	                           lives.                                                 server: TestABrokenWorkerCannotFillTheMemory
//	a peer is not who it says, With --tls it is refused before anything is read. Both mtls: TestOnlyThoseWhoAreMeantAreBelieved,
//	or has another role        sides get a clear error, and the server lives.         transport: TestEachStreamIsForItsRoles,
//	                                                                                  etcd: TestAnEtcdByTLSKnowsWhoCalls
//	the disk is full, or the   Training goes on, and the checkpoint's event has the   conductor: save.txt, flaky.txt,
//	store is away              error.                                                 ckpt: TestSaveCanBeTriedAgainAfterAnError,
//	                                                                                  TestALostAnswerChangesNothing
package recovery
