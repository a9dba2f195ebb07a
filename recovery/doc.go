// Package recovery keeps a run alive when its processes die: it decides who serves, and from which step.
//
// The Coordinator is the shell around the pure core recovery/roster: it watches who is present, asks which
// checkpoint is newest, and puts the views that the core decides on. Any number of coordinators may run; one of them
// leads. What a coordinator must not forget lies in etcd, so its death loses nothing.
//
// # What a run survives
//
// The first column is what happens, the second what holds in this release, the third where it is shown. A row
// that says "later" names what a later release brings; until then the second column is all there is.
//
//	happens                    holds                                                  shown by
//	-------                    -----                                                  --------
//	a server dies              when it is back, a new view on a new line: all         TestAServerThatDiesIsRestoredFromTheNewestCheckpoint,
//	                           shards restore the newest full checkpoint, and the     roster: checkpoint.txt
//	                           steps since then are computed again
//	  Config.Roster.Replicas   a view without it on the same line, at once: no          roster: chains.txt, shard: chain/*.txt,
//	                           released step is lost, steps go on with the other      TestAServerOfChainsThatDiesIsOutOfTheViewAtOnceAndABrokenConnectionIsNoDeath,
//	                           replicas, and it comes in again at the tail            sim: TestNoSeedBreaksAPromiseOfAChain,
//	                                                                                  TestServersOfChainsDieAndTheModelIsTheSame
//	  a head and a worker      nothing released is lost; the open step is decided     shard: chain/worker.txt,
//	                           anew, without the worker if it does not come back      sim: TestAStepWhoseHeadAndWorkerDieIsDecidedAnew
//	  all replicas of a shard  as without replicas                                    roster: chains.txt
//	  one that still catches   a shard that is left to it has nobody left             shard: chain/joiner.txt, roster: chains.txt
//	  up
//	  one that hangs           taken for dead after two seconds, fenced by its        shard: chain/hang.txt,
//	                           chains, and taken in again                             TestAServerOfChainsThatIsSilentIsOutOfTheView
//	  Config.Roster.Copies,    its shard falls back to the newest copy of the next    roster: copies.txt, TestWithCopiesALineEndsWithAHead,
//	  and it heads a shard     replica, fewer released steps than lie between two;    shard: TestTheDeathOfAHeadCostsFewerStepsThanLieBetweenTwoCopies,
//	                           the others keep what they have                         sim: TestAShardWhoseHeadDiesFallsBackToACopy
//	  Config.Roster.           no step is lost; its shard falls back two released     roster: next.txt, shard: chain/next.txt,
//	  NextAnswers              steps at most if its head and its next are gone        sim: TestNoSeedBreaksAPromiseWhereTheNextAnswers,
//	                           together; the others keep what they have               TestHeadAndNextThatDieTogetherBeginALine
//	  Config.Roster.Partial    only its chunks go back, each to its newest saved       sim: TestAPartialRestoreIsTheLossOfTheLostChunksAlone,
//	                           value; the others keep theirs, and no step is taken    TestNoSeedBreaksAPromise,
//	                           back                                                   roster: partial.txt
//	  with its state outside   the line goes on where its next life finds what it     sim: TestServersThatFindTheirStateDoNotChangeTheModel,
//	  the process              held, and no step is taken back, whoever dies with     TestAServerThatFindsItsStateChangesNothing,
//	                           it; a state that is torn or foreign is none            roster: outside.txt
//	  Config.Roster.Replicas,  a view without it on the same line, while it lives,     roster: leaving.txt, TestServersThatHaveNoticeTakeNoStepBack
//	  and it has notice        as soon as others have everything
//	  both, and nobody has     a line that keeps what anybody has: only that shard      roster: gold_chains.txt, gold_alone.txt,
//	  a shard any more         comes back, to its newest saved values, and replicas   sim: TestNoSeedBreaksAPromiseOfGold,
//	                           come in again behind whoever has a shard               TestGoldBringsBackAloneWhatNobodyHas
//	  head and tail, server    memory that is left, then what was saved last; no       TestGoldTakesNothingBackWhereMemoryIsLeft,
//	  and coordinator, all     released step is lost while a shard is anywhere        TestGoldBringsBackAloneWhatNobodyHas,
//	  servers                                                                         TestGoldGoesOnFromWhatWasSavedWhereNothingIsLeft,
//	                                                                                  sim: TestDeathsThatMeetDoNotChangeTheModel
//	  Config.Roster.Chooses    the number of replicas changes by a line that keeps     roster: chosen.txt,
//	                           everything, when everybody is there                    sim: TestNoSeedBreaksAPromiseWhileReplicasAreChosen
//	  Config.Roster.MoveAfter, its shards come back on servers that are left, as     roster: moved.txt, moved_chains.txt, TestEveryShardComesHome,
//	  and it stays away        above, and missing replicas are made anew; when it     TestNobodyIsWaitedForLongerThanSaid,
//	                           is back it is sent them, on the line that goes on      sim: TestNoSeedBreaksAPromiseWhileShardsMove,
//	                                                                                  TestAShardComesHomeWithItsServer,
//	                                                                                  TestAShardThatMovesAndComesBackChangesNothing,
//	                                                                                  TestServersOfChainsThatStayAwayDoNotChangeTheModel,
//	                                                                                  TestAServerThatNeverReturnsIsNotWaitedFor
//	two servers do not reach   without one of them, as if it had died, until they      roster: apart.txt, TestHostsThatAreCutOff,
//	each other                 do; if it can be spared                                sim: TestServersThatNeverMeetAgainDoNotChangeTheModel
//	a server hangs until its   as if it had died, unless Config.LapsesForgiven        roster: lapse.txt
//	lease lapses
//	every server dies          the same, in one view                                  roster: checkpoint.txt
//	every process dies         a new start goes on from the view in etcd, or where    TestARestartedCoordinatorContinuesFromTheViewInEtcd,
//	                           etcd is gone from the newest checkpoint                roster: nothing_saved.txt
//	the coordinator dies       training goes on in the current view; the next         TestTheNextCoordinatorTakesOverAndSeesWhatItMissed
//	                           coordinator sees what it missed
//	etcd dies and is back      training goes on in the current view; leases live      TestTheCoordinatorOutlivesARestartOfEtcd,
//	                           on, and a failover waits                               etcd: TestARegistrationSurvivesARestartOfEtcdWithoutALapse
//	two coordinators believe   only the one whose candidacy etcd still knows puts     etcd: TestTheNextCandidateLeadsWhenTheLeaderResigns
//	that they lead             a view
//	two lives of one place     only the later one counts, and the earlier one         etcd: TestALaterLifeTakesThePlaceAtOnceAndTheEarlierOneLearnsOfIt
//	                           learns of it
//	the store is away          no new view, loudly, until it answers: a view that     TestAFailoverWaitsForTheStore
//	                           names an old checkpoint would throw steps away
//
// Workers are no part of a view: the conductor admits them and lets them go (package server). What else a run
// survives:
//
//	happens                    holds                                                  shown by
//	-------                    -----                                                  --------
//	a worker dies              training goes on; its uncounted gradient is lost,      sim: TestWorkerCrashEndsNothing,
//	                           nothing else                                           conductor: worker.txt
//	a killed server, bsp       the model ends with the bits of a calm run             sim: TestServerCrashDoesNotChangeTheModel
//	the network delays,        each push is counted at most once, all shards apply    conductor: TestAfterFaultsEveryRunFinishesAndCountsEachPushOnce,
//	doubles, cuts              the same sets, and the run goes on                     stream.txt, tickets.txt
//	a byte on the wire is      it is noticed and never held; the worker sends it      transport: TestAFlippedPayloadBitIsCorrupt,
//	wrong                      again                                                  server: TestDamagedBytesAreNotHeld
//	a byte on disk is wrong    it is named and never placed; the newest checkpoint    ckpt: TestVerifyNoticesEveryWrongByteAndNamesTheFile,
//	                           that is whole is used                                  TestCorruptValuesAreNeverPlaced
//	a crash while saving       the old checkpoint or the new one, whole               ckpt: TestCrashAfterAnyOperationLeavesTheOldOrTheNewCheckpoint
//	a gradient holds NaN       refused at the worker, and at the server, by the       server: TestAGradientThatIsNotFiniteIsRefused
//	or Inf                     name of its tensor
//	a peer is broken or        limits on sizes and counts before allocation; a clear  transport: TestServersRefuseOversizedMessages,
//	hostile                    error, and the server lives                            TestAbsurdMessagesAreRefused,
//	                                                                                  server: TestABrokenWorkerCannotFillTheMemory
//	a peer is not who it       with --tls it is refused before anything is read, a    mtls: TestOnlyThoseWhoAreMeantAreBelieved,
//	says, or has another role  clear error on both sides, and the server lives        transport: TestEachStreamIsForItsRoles,
//	                                                                                  etcd: TestAnEtcdByTLSKnowsWhoCalls
//	the disk is full, or the   training goes on, the event says so                    conductor: save.txt, flaky.txt,
//	store is away                                                                     ckpt: TestSaveCanBeTriedAgainAfterAnError,
//	                                                                                  TestALostAnswerChangesNothing
package recovery
