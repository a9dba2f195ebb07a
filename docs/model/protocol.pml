/* A model for Spin of steps, chains and views: two servers, two shards of two replicas each, two workers.
 *
 * It describes in a few pages what server/shard, server/chain, server/conductor and recovery/roster do together, and
 * `make model` looks at every order of events. The simulator (internal/sim) complements it: it runs the code itself,
 * but only in orders of events that it draws.
 *
 * Steps. When both heads hold a worker's push, it becomes a ticket. The conductor, beside the head of shard 0, decides a
 * step. Heads apply it, send it down the chain, and answer when the next replica has answered. A step that is stable on
 * every shard is released. A shard is also stable when both its head and the next replica have told the conductor that
 * they have applied the step.
 * Fences. Before a conductor decides anything, it takes every shard, and the take goes down the chain. A step that is
 * applied everywhere is finished; any other is decided anew.
 * Views on the same line. A server that is gone is taken out. A server that comes joins its chains at their ends. It is
 * sent a snapshot, catches up while steps go on, and is waited for from then on. A server that was wrongly taken for dead
 * goes on in the view that it knows.
 *
 * Faults, F of them: a server is killed (and starts again at any later time, or never); a server is taken for dead
 * although it is alive; a connection within a chain breaks; a worker is killed.
 *
 * What must hold:
 *   S1  a step is released with one set of gradients, whoever releases it, and a replica that has released it has
 *       applied that set
 *   S2  a gradient counts once
 *   S3  what was released is applied in every whole replica of the present view
 *   S4  shards are at most one step apart
 *   S5  a head is whole
 *   L   the run ends, unless no whole server is left: a state before the end in which nothing can happen is an error
 *
 * Not modelled: parameters (a replica is its history of counted sets), incarnations of workers, late gradients that
 * count, reading, saving, lines (if no whole server is left, the run is over), a conductor that connects to a shard
 * again. A step is applied and sent down in one event. A conductor's messages to a head are in order, so the states of
 * both say which of them have arrived. A server learns only of the newest view.
 *
 * By hand:  spin -DF=2 -a protocol.pml && cc -O2 -DSAFETY -DCOLLAPSE -DVECTORSZ=2048 -o pan pan.c && ./pan -m2000000
 *
 * Results (Spin 6.5.2), without errors: two steps and one fault, all 1,788,130 states; one step and one fault, all
 * 371,129; one step and two faults, all 14,734,580; with QUOTA=1, two steps and one fault, all 8,857,216. Two steps and
 * two faults were not tried.
 *
 * Rules can be taken away, to see what each is for. With -DANYSTABLE=1 (a head answers a step without those behind it)
 * S3 is broken, with one step and one fault, and so it is with -DHEADALONE=3 (a head that says that it waits is believed
 * alone) and -DSTRANGER=1 (a server that comes in counts as whole).
 * With -DHURRY=1 (a new conductor finishes a step that some shard lacks) a run stands still for ever if a worker dies
 * with a server (N=1, F=2). With -DANYTAKE=1 (a head answers a take without those behind it) nothing was found, in all
 * states of one step and one or two faults: in this model, a server that is taken out never heads all shards of its view.
 */
#ifndef N
#define N 2 /* steps */
#endif
#ifndef F
#define F 1 /* faults */
#endif
#ifndef QUOTA
#define QUOTA 2 /* gradients of a step: 2, less those of workers that are dead; or 1 */
#endif
#ifndef ANYTAKE
#define ANYTAKE 0
#endif
#ifndef ANYSTABLE
#define ANYSTABLE 0
#endif
#ifndef HURRY
#define HURRY 0
#endif
#ifndef HEADALONE
#define HEADALONE 0
#endif
#ifndef STRANGER
#define STRANGER 0
#endif

#define VIEWS (2*F+2)
#define ON (top<N && !over)

/* A gradient is one bit of a set: the gradient of worker w on version v. */
#define ID(w,v) (1<<(2*(v)+(w)))

mtype = { snapshot, take, update, commit, released, joined, taken, stable };

byte faults = F;
byte top;        /* newest step that any conductor has released */
byte fin[N+1];   /* by step: the set of gradients with which it was released */
bit over;        /* no whole server is left, so another line would begin */

/* Views, by number. The fence of a conductor is the number of its view. */
byte newest = 1;
byte in[VIEWS+1];       /* by view: its servers, a bit each */
byte first[2*VIEWS+2];  /* by view and shard: the server that heads the shard */
#define HEAD(v,s) first[2*(v)+(s)]

/* Servers. */
bit up[2] = 1;
bit away[2];       /* it lives, but the coordinator takes it for dead */
byte at[2] = 1;    /* the view in which it is; 0: none */
bit named[2] = 1;  /* the newest view names its present life */
byte since[2];     /* the view that took in its present life; 0: it was there from the start */
bit whole[2] = 1;  /* the coordinator has been told that it has caught up */

/* Replicas: server i, shard s. */
#define R(i,s) (2*(i)+(s))
byte promised[4], rel[4], app[4];
bit lacking[4];
#define H(r,t) ((r)*(N+1)+(t))
byte hset[4*(N+1)], hdec[4*(N+1)];  /* by step: the set that was applied, and the fence under which it was decided */

/* What a head knows of the replica behind it. */
#define NOBODY 0
#define COUNTS 1
#define JOINING 2
byte next[4], lpromised[4], lstep[4], ldec[4];
byte keptTaken[4], keptStable[4];  /* answers that the head holds back, for a fence and for a step; 0: none */
bit linked[2];                     /* by shard: the replica behind the head is connected to it */
chan down[2] = [10] of { mtype, byte, byte, byte, byte };  /* step, set, decided, fence */
chan back[2] = [10] of { mtype, byte, byte };              /* taken: fence, released. stable: step, decided */

/* The conductor on server i, if it heads shard 0 of its view. */
byte asked[2], got[2];               /* the shards that were asked, and those that have answered; a bit each */
byte trel[4], tapp[4], tset[4], tdec[4];
bit decides[2];
byte crel[2], cset[2], cdec[2], said[2], tickets[2];
byte heard[4];  /* by conductor: the shards whose heads have said that they have applied the step, and those whose replicas behind have */

/* Workers. */
bit lives[2] = 1;

/* Scratch variables: each is used within one d_step only. */
hidden byte k, x, y, z, fence, ok;
hidden mtype msg;


#define HEADS(i,s) (up[i] && at[i] && HEAD(at[i],s)==i)
#define LEADS(i) HEADS(i,0)
#define MATE(i,s) HEAD(at[i],s)
#define TOGETHER(i,s) (up[MATE(i,s)] && at[MATE(i,s)]==at[i])  /* the head of shard s is up, and in the same view as server i */
#define BEHIND(i,s) (up[i] && at[i] && HEAD(at[i],s)==1-i && up[1-i] && at[1-i]==at[i])
#define COUNTED(r) (up[(r)/2] && named[(r)/2] && since[(r)/2]<=at[(r)/2] && at[(r)/2] && !lacking[r])

inline check() {
  k = 0;
  do
  :: k<4 ->
     if
     :: COUNTED(k) ->
        assert(app[k]>=top); /* S3 */
        x = 1;
        do
        :: x<=N -> assert(x>top || hset[H(k,x)]==fin[x]); assert(x>rel[k] || hset[H(k,x)]==fin[x]); x++ /* S1, S3 */
        :: else -> break
        od;
        x = 0;
        do
        :: x<4 -> assert(!COUNTED(x) || (app[k]<=app[x]+1 && app[x]<=app[k]+1)); x++ /* S4 */
        :: else -> break
        od
     :: else
     fi;
     k++
  :: else -> break
  od;
  k = 0
}

inline cut(shard) {
  do :: len(down[shard])>0 -> down[shard]?_,_,_,_,_ :: len(down[shard])==0 -> break od;
  do :: len(back[shard])>0 -> back[shard]?_,_,_ :: len(back[shard])==0 -> break od;
  linked[shard] = 0
}

/* A head sends its conductor those answers that no longer wait for the replica behind it. */
inline answer(head,its) {
  k = HEAD(at[head],0);
  if
  :: keptTaken[R(head,its)] && (ANYTAKE || next[R(head,its)]!=COUNTS || lpromised[R(head,its)]>=keptTaken[R(head,its)]) ->
     keptTaken[R(head,its)] = 0;
     if
     :: up[k] && at[k]==at[head] ->
        got[k] = got[k] | (1<<its);
        trel[R(k,its)] = rel[R(head,its)]; tapp[R(k,its)] = app[R(head,its)];
        tset[R(k,its)] = hset[H(R(head,its),app[R(head,its)])]; tdec[R(k,its)] = hdec[H(R(head,its),app[R(head,its)])]
     :: else
     fi
  :: else
  fi;
  if
  :: keptStable[R(head,its)] && (ANYSTABLE || next[R(head,its)]!=COUNTS || (lstep[R(head,its)]==keptStable[R(head,its)] && ldec[R(head,its)]==hdec[H(R(head,its),keptStable[R(head,its)])])) ->
     if
     :: up[k] && at[k]==at[head] && decides[k] && cset[k] && crel[k]+1==keptStable[R(head,its)] -> said[k] = said[k] | (1<<its)
     :: else
     fi;
     keptStable[R(head,its)] = 0
  :: else
  fi
}

/* A replica tells the conductor that it has applied a step: a head, or the replica behind it (which is 0 or 1). */
inline tell(who,what,whose,which) {
  k = HEAD(at[who],0);
  if
  :: up[k] && at[k]==at[who] && decides[k] && cset[k] && crel[k]+1==what && cdec[k]==hdec[H(R(who,whose),what)] -> heard[2*k+which] = heard[2*k+which] | (1<<whose)
  :: else
  fi
}

/* The replica behind has everything that the head has. */
inline caughtUp(who,whose) {
  if
  :: next[R(who,whose)]==JOINING -> next[R(who,whose)] = COUNTS; down[whose]!joined,0,0,0,0
  :: else
  fi
}

inline apply(replica,step,set,decided) { app[replica] = step; hset[H(replica,step)] = set; hdec[H(replica,step)] = decided }

/* A head has applied a step. It answers when the replica behind it has applied the step too. */
inline tookStep(mine,its) {
  keptStable[R(mine,its)] = app[R(mine,its)];
  if
  :: next[R(mine,its)]==JOINING && lstep[R(mine,its)]==app[R(mine,its)] && ldec[R(mine,its)]==hdec[H(R(mine,its),app[R(mine,its)])] -> caughtUp(mine,its)
  :: else
  fi;
  tell(mine,app[R(mine,its)],its,0);
  answer(mine,its)
}

proctype Replica(byte i; byte s) {
end:
  do
  /* The replica behind connects to the head and says which steps it has. The head sends what it lacks. */
  :: d_step { ON && BEHIND(i,s) && !linked[s] && !lacking[R(1-i,s)] ->
       x = R(1-i,s); y = R(i,s);
       ok = !lacking[y] && (rel[y]==rel[x] || (rel[y]+1==rel[x] && app[y]==rel[x] && hdec[H(y,app[y])]==hdec[H(x,rel[x])]));
       lpromised[x] = 0; lstep[x] = 0; ldec[x] = 0;
       cut(s);
       linked[s] = 1;
       if
       :: ok -> next[x] = COUNTS
       :: else -> next[x] = JOINING; answer(1-i,s); down[s]!snapshot,rel[x],0,0,0
       fi;
       if :: promised[x] -> down[s]!take,0,0,0,promised[x] :: else fi;
       if :: ok && rel[y]<rel[x] -> down[s]!released,rel[x],0,0,promised[x] :: else fi;
       if
       :: app[x]>rel[x] && ok && app[y]==app[x] && hdec[H(y,app[y])]==hdec[H(x,app[x])] -> down[s]!commit,app[x],0,hdec[H(x,app[x])],promised[x]
       :: app[x]>rel[x] && !(ok && app[y]==app[x] && hdec[H(y,app[y])]==hdec[H(x,app[x])]) ->
          down[s]!update,app[x],hset[H(x,app[x])],hdec[H(x,app[x])],promised[x]
       :: else
       fi }

  /* The replica behind does what the head says, as a head does what a conductor says. If it cannot, it connects
   * again. */
  :: d_step { ON && BEHIND(i,s) && linked[s] && nempty(down[s]) ->
       down[s]?msg,x,y,z,fence;
       ok = 1;
       if
       :: msg==snapshot ->
          rel[R(i,s)] = x; app[R(i,s)] = x;
          k = 1;
          do
          :: k<=N ->
             hset[H(R(i,s),k)] = (k<=x -> hset[H(R(1-i,s),k)] : 0);
             hdec[H(R(i,s),k)] = (k<=x -> hdec[H(R(1-i,s),k)] : 0);
             k++
          :: else -> break
          od
       :: msg==take ->
          if
          :: fence>=promised[R(i,s)] -> promised[R(i,s)] = fence; back[s]!taken,fence,rel[R(i,s)]
          :: else -> ok = 0
          fi
       :: msg==update && fence!=promised[R(i,s)] -> ok = 0
       :: msg==update && fence==promised[R(i,s)] && x==rel[R(i,s)]+1 ->
          if
          :: app[R(i,s)]==x && hdec[H(R(i,s),x)]>=z
          :: else -> apply(R(i,s),x,y,z)
          fi;
          tell(i,x,s,1);
          back[s]!stable,x,hdec[H(R(i,s),x)]
       :: msg==update && fence==promised[R(i,s)] && x!=rel[R(i,s)]+1
       :: msg==commit ->
          ok = app[R(i,s)]==x && hdec[H(R(i,s),x)]==z && fence==promised[R(i,s)];
          if
          :: ok && x==rel[R(i,s)]+1 -> tell(i,x,s,1); back[s]!stable,x,z
          :: else
          fi
       :: msg==released ->
          ok = fence==promised[R(i,s)] && (rel[R(i,s)]>=x || (rel[R(i,s)]+1==x && app[R(i,s)]==x));
          if
          :: ok && rel[R(i,s)]<x -> rel[R(i,s)] = x
          :: else
          fi
       :: msg==joined -> lacking[R(i,s)] = 0
       fi;
       if :: ok :: else -> cut(s) fi;
       check() }

  /* A head gets an answer of the replica behind it. */
  :: d_step { ON && HEADS(i,s) && linked[s] && nempty(back[s]) ->
       back[s]?msg,x,y;
       if
       :: msg==taken ->
          if :: x>lpromised[R(i,s)] -> lpromised[R(i,s)] = x :: else fi;
          ok = y==app[R(i,s)]
       :: msg==stable ->
          lstep[R(i,s)] = x; ldec[R(i,s)] = y;
          ok = x==app[R(i,s)] && y==hdec[H(R(i,s),x)]
       fi;
       if :: ok -> caughtUp(i,s) :: else fi;
       answer(i,s) }
  od
}

/* The conductor forgets what shards have answered. */
inline forget(leader) {
  asked[leader] = 0; got[leader] = 0;
  trel[R(leader,0)] = 0; tapp[R(leader,0)] = 0; tset[R(leader,0)] = 0; tdec[R(leader,0)] = 0;
  trel[R(leader,1)] = 0; tapp[R(leader,1)] = 0; tset[R(leader,1)] = 0; tdec[R(leader,1)] = 0
}

/* What the conductor on server i does with shard s, and with worker s. */
proctype Conductor(byte i; byte s) {
end:
  do
  /* It asks each shard to promise its fence. */
  :: d_step { ON && LEADS(i) && !decides[i] && TOGETHER(i,s) && (asked[i] & (1<<s))==0 ->
       asked[i] = asked[i] | (1<<s);
       if
       :: promised[R(MATE(i,s),s)]<=at[i] ->
          promised[R(MATE(i,s),s)] = at[i];
          keptTaken[R(MATE(i,s),s)] = at[i];
          if :: linked[s] -> down[s]!take,0,0,0,at[i] :: else fi;
          answer(MATE(i,s),s)
       :: else
       fi }

  /* All shards have promised. The conductor knows no more than what they have said. */
  :: d_step { ON && s==0 && LEADS(i) && !decides[i] && got[i]==3 ->
       decides[i] = 1;
       crel[i] = (trel[R(i,0)]>trel[R(i,1)] -> trel[R(i,0)] : trel[R(i,1)]);
       assert(tapp[R(i,0)]>=crel[i] && tapp[R(i,1)]>=crel[i]);
       cset[i] = 0; cdec[i] = 0; said[i] = 0; heard[2*i] = 0; heard[2*i+1] = 0;
       x = crel[i]+1;
       if
       :: tapp[R(i,0)]==x && tapp[R(i,1)]==x && tdec[R(i,0)]==tdec[R(i,1)] -> cset[i] = tset[R(i,0)]; cdec[i] = tdec[R(i,0)]
       :: HURRY && tapp[R(i,0)]==x && tapp[R(i,1)]!=x -> cset[i] = tset[R(i,0)]; cdec[i] = tdec[R(i,0)]
       :: else
       fi;
       forget(i) }

  /* A ticket arrives: worker s has read the newest version from both heads. Both hold its gradient for as long as
   * they stay in this view. */
  :: d_step { ON && LEADS(i) && decides[i] && lives[s] && crel[i]<N && TOGETHER(i,1) && rel[R(i,0)]==crel[i] && rel[R(MATE(i,1),1)]==crel[i] &&
       (tickets[i] & ID(s,crel[i]))==0 ->
       tickets[i] = tickets[i] | ID(s,crel[i]) }

  /* It decides a step. */
  :: d_step { ON && s==0 && LEADS(i) && decides[i] && !cset[i] && crel[i]<N && QUOTA==2 && (tickets[i] & ID(0,crel[i])) && (tickets[i] & ID(1,crel[i])) ->
       cset[i] = ID(0,crel[i]) | ID(1,crel[i]); cdec[i] = at[i]; said[i] = 0; heard[2*i] = 0; heard[2*i+1] = 0 }
  :: d_step { ON && LEADS(i) && decides[i] && !cset[i] && crel[i]<N && (QUOTA==1 || !lives[1-s]) && (tickets[i] & ID(s,crel[i])) ->
       cset[i] = ID(s,crel[i]); cdec[i] = at[i]; said[i] = 0; heard[2*i] = 0; heard[2*i+1] = 0 }

  /* A head gets the decision of a step. It applies the step, or replaces another decision of it, or has it already
   * and answers again. */
  :: d_step { ON && LEADS(i) && TOGETHER(i,s) && decides[i] && cset[i] && promised[R(MATE(i,s),s)]==at[i] && rel[R(MATE(i,s),s)]==crel[i] &&
       (said[i] & (1<<s))==0 && !keptStable[R(MATE(i,s),s)] &&
       ((app[R(MATE(i,s),s)]==crel[i]+1 && hdec[H(R(MATE(i,s),s),crel[i]+1)]==cdec[i]) || (cset[i] & ~tickets[i])==0) ->
       y = MATE(i,s); z = R(y,s); x = crel[i]+1;
       if
       :: app[z]==x && hdec[H(z,x)]>=cdec[i] ->
          if :: linked[s] -> down[s]!commit,x,0,hdec[H(z,x)],at[i] :: else fi
       :: else ->
          apply(z,x,cset[i],cdec[i]);
          if :: linked[s] -> down[s]!update,x,cset[i],cdec[i],at[i] :: else fi
       fi;
       tookStep(y,s);
       check() }

  /* The step is stable on every shard, so the conductor releases it. */
  :: d_step { ON && s==0 && LEADS(i) && decides[i] && cset[i] && (said[i] | (heard[2*i] & (heard[2*i+1] | HEADALONE)))==3 ->
       crel[i] = crel[i]+1;
       assert(!fin[crel[i]] || fin[crel[i]]==cset[i]); /* S1 */
       fin[crel[i]] = cset[i];
       x = 1;
       do
       :: x<=N -> assert(x==crel[i] || (fin[x] & cset[i])==0); x++ /* S2 */
       :: else -> break
       od;
       if :: crel[i]>top -> top = crel[i] :: else fi;
       cset[i] = 0; cdec[i] = 0; said[i] = 0; heard[2*i] = 0; heard[2*i+1] = 0; tickets[i] = 0;
       check() }

  /* A head learns that its step is released. */
  :: d_step { ON && LEADS(i) && TOGETHER(i,s) && decides[i] && promised[R(MATE(i,s),s)]==at[i] && rel[R(MATE(i,s),s)]<crel[i] && app[R(MATE(i,s),s)]==crel[i] ->
       z = R(MATE(i,s),s);
       rel[z] = crel[i];
       keptStable[z] = 0; /* nobody waits for this answer any more */
       if :: linked[s] -> down[s]!released,crel[i],0,0,at[i] :: else fi;
       check() }
  od
}

proctype Server(byte i) {
end:
  do
  /* It enters the newest view. It keeps its replicas if no view has gone on without it. It drops the gradients that
   * it held. */
  :: d_step { ON && up[i] && named[i] && at[i]<newest ->
       ok = since[i]>at[i];
       at[i] = newest;
       x = 0;
       do
       :: x<2 ->
          z = R(i,x);
          cut(x);
          keptTaken[z] = 0; keptStable[z] = 0; lpromised[z] = 0; lstep[z] = 0; ldec[z] = 0;
          next[z] = (HEAD(newest,x)==i && in[newest]==3 -> COUNTS : NOBODY);
          if
          :: ok ->
             lacking[z] = !STRANGER; rel[z] = 0; app[z] = 0; promised[z] = 0;
             y = 1;
             do :: y<=N -> hset[H(z,y)] = 0; hdec[H(z,y)] = 0; y++ :: else -> break od
          :: else
          fi;
          assert(HEAD(newest,x)!=i || !lacking[z]); /* S5 */
          x++
       :: else -> break
       od;
       forget(i); decides[i] = 0; crel[i] = 0; cset[i] = 0; cdec[i] = 0; said[i] = 0; heard[2*i] = 0; heard[2*i+1] = 0; tickets[i] = 0 }

  /* It tells the coordinator that it has caught up. */
  :: d_step { ON && up[i] && named[i] && at[i]==newest && !whole[i] && !lacking[R(i,0)] && !lacking[R(i,1)] -> whole[i] = 1 }

  /* Its process starts again. Or: the coordinator learns that it was not dead. */
  :: d_step { ON && !up[i] -> up[i] = 1 }
  :: d_step { ON && away[i] -> away[i] = 0 }
  od
}

#define GONE(i) ((in[newest] & (1<<(i))) && !named[i])
#define COMES(i) (up[i] && !named[i] && !away[i])
#define STAYS(i) ((in[newest] & (1<<(i))) && named[i])

proctype Coordinator() {
end:
  do
  /* The coordinator makes the next view. Servers that are gone are left out. Servers that come are put at the ends
   * of their chains. */
  :: d_step { ON && (GONE(0) || GONE(1) || COMES(0) || COMES(1)) ->
       if
       :: (STAYS(0) && whole[0]) || (STAYS(1) && whole[1]) ->
          assert(newest<VIEWS);
          x = (STAYS(0) -> 1 : 0) + (STAYS(1) -> 2 : 0);
          y = (COMES(0) -> 1 : 0) + (COMES(1) -> 2 : 0);
          z = 0;
          do
          :: z<2 ->
             if
             :: x & (1<<HEAD(newest,z)) -> HEAD(newest+1,z) = HEAD(newest,z)
             :: else -> HEAD(newest+1,z) = 1-HEAD(newest,z)
             fi;
             z++
          :: else -> break
          od;
          newest++;
          in[newest] = x | y;
          z = 0;
          do
          :: z<2 ->
             if
             :: y & (1<<z) -> named[z] = 1; since[z] = newest; whole[z] = 0
             :: else
             fi;
             z++
          :: else -> break
          od
       :: else -> over = 1
       fi }
  od
}

/* The faults of server i, chain i and worker i. */
proctype Faults(byte i) {
end:
  do
  /* A server is killed. */
  :: d_step { ON && faults && up[i] ->
       faults--;
       up[i] = 0; away[i] = 0; named[i] = 0; at[i] = 0; whole[i] = 0;
       x = 0;
       do
       :: x<2 ->
          z = R(i,x);
          cut(x);
          keptTaken[z] = 0; keptStable[z] = 0; lpromised[z] = 0; lstep[z] = 0; ldec[z] = 0; next[z] = 0;
          lacking[z] = 0; rel[z] = 0; app[z] = 0; promised[z] = 0;
          y = 1;
          do :: y<=N -> hset[H(z,y)] = 0; hdec[H(z,y)] = 0; y++ :: else -> break od;
          x++
       :: else -> break
       od;
       forget(i); decides[i] = 0; crel[i] = 0; cset[i] = 0; cdec[i] = 0; said[i] = 0; heard[2*i] = 0; heard[2*i+1] = 0; tickets[i] = 0 }

  /* The coordinator takes it for dead, and it does not know. */
  :: d_step { ON && faults && up[i] && STAYS(i) && in[newest]==3 -> faults--; named[i] = 0; away[i] = 1; whole[i] = 0 }

  /* A connection within a chain breaks. */
  :: d_step { ON && faults && linked[i] -> faults--; cut(i) }

  /* A worker is killed. */
  :: d_step { ON && faults && lives[0] && lives[1] -> faults--; lives[i] = 0 }
  od
}

init {
  d_step { in[1] = 3; HEAD(1,1) = 1; next[R(0,0)] = COUNTS; next[R(1,1)] = COUNTS };
  atomic {
    run Replica(0,0); run Replica(0,1); run Replica(1,0); run Replica(1,1);
    run Conductor(0,0); run Conductor(0,1); run Conductor(1,0); run Conductor(1,1);
    run Server(0); run Server(1); run Coordinator(); run Faults(0); run Faults(1)
  };
  (top==N || over) /* L */
}
