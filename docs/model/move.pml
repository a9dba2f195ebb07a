/* A model for Spin of shards that move while steps go on: two servers and two shards of one replica each. Each server
 * keeps its own shard in a file that outlives its process.
 *
 * It describes what recovery/roster (move.go, keeps.go, roster.go), server/shard, server/conductor (adopt.go) and package
 * server do together with --recovery gold, --move-after and one replica.
 *
 * A server that stays away is waited for until the time of --move-after is over. Then the other server heads both
 * shards, on a line that keeps what that server has; a shard that nobody has is restored as it was saved. When the first
 * server is back, it is sent its shard on the line that goes on, as the second of a chain of two. It says when it has
 * everything, and the next view leaves the other server out. A server that is killed finds its shard in its file. The
 * line goes on if all missing servers have a file of it. Otherwise the next line keeps what is in the file, as long as
 * the file counts (View.From). The conductor goes where shard 0 goes.
 *
 * Faults, F of them: a server is killed, and its file stays or is lost with its host; the lease of a server expires
 * although the server is alive.
 *
 * What must hold (others rely on heads, and on servers that have said that they have everything):
 *   S1  a step is released with one decision, which all that others rely on have applied
 *   S3  what was released is applied by all that others rely on
 *   S5  a head is whole, and its shard is the one that was restored last: no older file or memory counts
 *   B   a line begins no earlier than the one before has got, all shards begin it at one step, and what is kept is
 *       unchanged
 *   M   nothing is lost that a server still has, if that server is there
 *   L   the run ends, unless both shards were lost
 *
 * Not modelled: gradients and workers (a decision is its fence), saved values (a restored shard is a new birth of it),
 * shards that move from one stand-in to another, more servers, connections that break, notices, the time after which
 * leases expire. A server writes its file in one event; internal/shm and its tests have the rest. A conductor takes a head
 * as soon as both have entered a view. The number of views is bounded: a server that misses the view in which it had to
 * load a shard ends in the next one, and two servers that do so in turn could cause views for ever.
 *
 * By hand:  spin -DF=2 -a move.pml && cc -O2 -DSAFETY -DCOLLAPSE -DVECTORSZ=4096 -o pan pan.c && ./pan -m1000000
 *
 * Results (Spin 6.5.2), without errors: two steps and one fault, all 49,009 states. With hashes of states in place of
 * states (-DHC4): two steps and two faults, 3,282,249; three steps and two faults, 11,522,826.
 *
 * Rules can be taken away, to see what each is for. With two steps and two faults, S3 is broken by -DANYHOME=1 (a shard
 * goes home before its server has said that it has everything), -DANYSTABLE=1 (a head answers without the second replica
 * although that has caught up) and -DUNCOUNTED=1 (a replica that has caught up is not waited for). Two rules guard against
 * files that steps have passed: a server that is sent its shard empties its file before it says that it has everything,
 * and a shard that was lost says from which line on files count. Without one of them, -DKEEPSFILE=1, or -DOLDFILE=1
 * -DANYFILE=1 (of the coordinator and of the server), nothing was found; without both, B is broken.
 */
#ifndef N
#define N 2 /* steps */
#endif
#ifndef F
#define F 1 /* faults */
#endif
#ifndef FORGIVEN
#define FORGIVEN 1
#endif
#ifndef ANYFILE
#define ANYFILE 0
#endif
#ifndef ANYHOME
#define ANYHOME 0
#endif
#ifndef KEEPSFILE
#define KEEPSFILE 0
#endif
#ifndef OLDFILE
#define OLDFILE 0
#endif
#ifndef ANYSTABLE
#define ANYSTABLE 0
#endif
#ifndef UNCOUNTED
#define UNCOUNTED 0
#endif

#define VIEWS (4*F+3)
#define ON (top<N && !over)
#define NONE 2

mtype = { snapshot, take, update, commit, released, joined, taken, stable };

byte faults = F;
byte top;        /* newest step that was released; after a line has begun, the step at which it began */
byte fin[N+1];   /* by step: the decision with which it was released */
byte line = 1;   /* the line that has begun last */
byte begins;     /* the step at which that line began */
byte birth[2];   /* by shard: how often it was restored from what was saved */
byte from[2];    /* by shard: the step at which it was last restored */
bit over;        /* no server is left that has a shard: all shards would go back to a checkpoint */

/* Views, by number. The fence of a conductor is the number of its view. Each line after the first keeps what the
 * line before has. */
byte newest = 1;
byte lineOf[VIEWS+1];
bit goesOn[VIEWS+1];     /* by view: it goes on with the line of the view before */
byte head[2*VIEWS+2];    /* by view and shard */
byte second[2*VIEWS+2];
#define HEAD(v,s) head[2*(v)+(s)]
#define SECOND(v,s) second[2*(v)+(s)]

/* About the newest view. */
bit named[2];    /* by server: the view names its present life */
byte since[4];   /* by server and shard: the view that took the server into the chain; 0: it was there when the line began */
bit lost[2];     /* by shard: no server had it when the line began */
byte counts[2];  /* by shard: the first line whose files of it count */

/* Servers. */
bit up[2] = 1;
bit here[2] = 1; /* as far as the coordinator knows, it is there */
bit lapsed[2];   /* its present life was away at some time since the newest view was made */
bit missed[2];     /* it has been away for longer than the time of --move-after */
byte word[2];    /* the newest view for which it has said that it has caught up */
byte holds[2];   /* the line of the state that its present life found in its file; 0: none */
byte at[2] = 1;

/* Replicas: server i, shard s. */
#define R(i,s) (2*(i)+(s))
#define SETTLED 0
#define KEPT 1
#define LOST 2
bit has[4], lacking[4];
byte standing[4], promised[4], rel[4], app[4], low[4], born[4];
#define H(r,t) ((r)*(N+1)+(t))
byte dec[4*(N+1)];
#define KNOWN(r,t) ((t)>=low[r] && (t)<=app[r] -> dec[H(r,t)] : 0)

/* What the head of a chain of two knows of the second replica. */
#define NOBODY 0
#define COUNTS 1
#define JOINING 2
byte next[4], lpromised[4], lstep[4], ldec[4];
byte keptTaken[4], keptStable[4];
bit linked[2];
chan down[2] = [10] of { mtype, byte, byte, byte };
chan back[2] = [10] of { mtype, byte, byte };

/* Files. Each server has one, for the shard of its own number. */
bit writes[2];       /* its replica writes to the file */
byte fline[2], fapp[2], flow[2], fborn[2];  /* fline: its line, 0 if nothing in it is of use. flow: the older of the versions in it */
byte fdec[2*(N+1)];
#define FD(i,t) fdec[(i)*(N+1)+(t)]

/* The conductor on server i, if it heads shard 0 of its view. */
bit got[4], decides[2];
byte crel[2], cdec[2], said[2], sent[2];
byte heard[4]; /* by conductor: the shards whose heads have said that they have applied the step, and those whose second replicas have */

hidden byte k, x, y, z, b, h0, h1, w0, w1, l0, l1, fence;
hidden byte ok, was;
hidden mtype msg;

#define CHAINED(s) (SECOND(newest,s)!=NONE)
#define IN(i,s) (HEAD(newest,s)==(i) || SECOND(newest,s)==(i))
#define INANY(i) (IN(i,0) || IN(i,1))
#define ALONE(v,i) (HEAD(v,i)==(i) && SECOND(v,i)==NONE) /* in view v, server i alone has its own shard, and so writes its file */

#define HEADS(i,s) (up[i] && at[i] && HEAD(at[i],s)==(i) && has[R(i,s)])
#define LEADS(i) HEADS(i,0)
#define MATE(i,s) HEAD(at[i],s)
#define TOGETHER(i,s) (up[MATE(i,s)] && at[MATE(i,s)]==at[i] && has[R(MATE(i,s),s)])
#define BEHIND(i,s) (up[i] && at[i] && SECOND(at[i],s)==(i) && up[1-(i)] && at[1-(i)]==at[i])

/* Others rely on the replica of shard s on server i. */
#define RELIED(i,s) (up[i] && named[i] && has[R(i,s)] && at[i] && IN(i,s) && (HEAD(newest,s)==(i) || word[i]>=since[R(i,s)]) && \
	at[i]>=since[R(i,s)] && lineOf[at[i]]==lineOf[newest] && line==lineOf[newest] && standing[R(i,s)]==SETTLED)

inline check() {
  k = 0;
  do
  :: k<4 ->
     if
     :: RELIED(k/2,k%2) ->
        assert(app[k]>=top); /* S3 */
        assert(app[k]<=top+1);
        assert(born[k]==birth[k%2]); /* S5 */
        x = from[k%2]+1;
        do
        :: x<=top -> assert(dec[H(k,x)]==fin[x]); x++ /* S1, S3 */
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
  do :: len(down[shard])>0 -> down[shard]?_,_,_,_ :: len(down[shard])==0 -> break od;
  do :: len(back[shard])>0 -> back[shard]?_,_,_ :: len(back[shard])==0 -> break od;
  linked[shard] = 0
}

inline answer(who,its) {
  k = HEAD(at[who],0);
  if
  :: keptTaken[R(who,its)] && (next[R(who,its)]!=COUNTS || lpromised[R(who,its)]>=keptTaken[R(who,its)]) ->
     if
     :: keptTaken[R(who,its)]==at[who] && up[k] && at[k]==at[who] -> got[R(k,its)] = 1
     :: else
     fi;
     keptTaken[R(who,its)] = 0
  :: else
  fi;
  if
  :: keptStable[R(who,its)] && (ANYSTABLE || next[R(who,its)]!=COUNTS || (lstep[R(who,its)]==keptStable[R(who,its)] && ldec[R(who,its)]==dec[H(R(who,its),keptStable[R(who,its)])])) ->
     if
     :: up[k] && at[k]==at[who] && decides[k] && cdec[k] && crel[k]+1==keptStable[R(who,its)] -> said[k] = said[k] | (1<<its)
     :: else
     fi;
     keptStable[R(who,its)] = 0
  :: else
  fi;
  k = 0
}

/* A replica tells the conductor that it has applied a step: a head, or the second replica (which is 0 or 1). */
inline tell(who,what,whose,which) {
  k = HEAD(at[who],0);
  if
  :: up[k] && at[k]==at[who] && decides[k] && cdec[k] && crel[k]+1==what && cdec[k]==dec[H(R(who,whose),what)] -> heard[2*k+which] = heard[2*k+which] | (1<<whose)
  :: else
  fi;
  k = 0
}

inline caughtUp(who,its) {
  if
  :: next[R(who,its)]==JOINING -> next[R(who,its)] = (UNCOUNTED -> JOINING : COUNTS); down[its]!joined,0,0,0
  :: else
  fi
}

inline apply(who,its,step,decided) {
  app[R(who,its)] = step; dec[H(R(who,its),step)] = decided;
  if :: low[R(who,its)]+1<step -> low[R(who,its)] = step-1 :: else fi;
  if :: who==its && writes[who] -> fapp[who] = step; flow[who] = step-1; FD(who,step) = decided :: else fi
}

inline tookStep(mine,its) {
  keptStable[R(mine,its)] = app[R(mine,its)];
  if
  :: lstep[R(mine,its)]==app[R(mine,its)] && ldec[R(mine,its)]==dec[H(R(mine,its),app[R(mine,its)])] -> caughtUp(mine,its)
  :: else
  fi;
  tell(mine,app[R(mine,its)],its,0);
  answer(mine,its)
}

/* The replica begins to write its file. The file holds what the replica has: one version after a line has begun, and
 * two otherwise. */
inline format(who) {
  writes[who] = 1; fline[who] = lineOf[at[who]]; fborn[who] = born[R(who,who)]; fapp[who] = app[R(who,who)]; flow[who] = rel[R(who,who)];
  z = 1;
  do :: z<=N -> FD(who,z) = dec[H(R(who,who),z)]; z++ :: else -> break od
}

proctype Replica(byte i; byte s) {
end:
  do
  /* The second replica connects to the head and says which steps it has. The head sends what it lacks. */
  :: d_step { ON && BEHIND(i,s) && !linked[s] && !lacking[R(1-i,s)] && standing[R(1-i,s)]==SETTLED ->
       x = R(1-i,s); y = R(i,s);
       z = KNOWN(y,app[y]);
       ok = !lacking[y] && (rel[y]==rel[x] || (rel[y]+1==rel[x] && app[y]==rel[x] && z==KNOWN(x,rel[x])));
       lpromised[x] = 0; lstep[x] = 0; ldec[x] = 0;
       cut(s);
       linked[s] = 1;
       if
       :: ok -> next[x] = COUNTS
       :: else -> next[x] = JOINING; answer(1-i,s); down[s]!snapshot,rel[x],KNOWN(x,rel[x])!=0,0
       fi;
       if :: promised[x] -> down[s]!take,0,0,promised[x] :: else fi;
       if :: ok && rel[y]<rel[x] -> down[s]!released,rel[x],0,promised[x] :: else fi;
       if
       :: app[x]>rel[x] && ok && app[y]==app[x] && z==KNOWN(x,app[x]) -> down[s]!commit,app[x],dec[H(x,app[x])],promised[x]
       :: app[x]>rel[x] && !(ok && app[y]==app[x] && z==KNOWN(x,app[x])) -> down[s]!update,app[x],dec[H(x,app[x])],promised[x]
       :: else
       fi }
  /* The same if the head made its last step before it had a second replica: then it has no sum of that step to send. */
  :: d_step { ON && BEHIND(i,s) && !linked[s] && !lacking[R(1-i,s)] && standing[R(1-i,s)]==SETTLED && lacking[R(i,s)] && app[R(1-i,s)]>rel[R(1-i,s)] ->
       x = R(1-i,s);
       lpromised[x] = 0; lstep[x] = 0; ldec[x] = 0;
       cut(s);
       linked[s] = 1;
       next[x] = JOINING; answer(1-i,s); down[s]!snapshot,rel[x],KNOWN(x,rel[x])!=0,0;
       if :: promised[x] -> down[s]!take,0,0,promised[x] :: else fi }

  /* The second replica does what the head says, as a head does what a conductor says. If it cannot, it connects
   * again. */
  :: d_step { ON && BEHIND(i,s) && linked[s] && nempty(down[s]) ->
       down[s]?msg,x,y,fence;
       ok = 1;
       if
       :: msg==snapshot ->
          rel[R(i,s)] = x; app[R(i,s)] = x; low[R(i,s)] = x+1-y; born[R(i,s)] = born[R(1-i,s)];
          k = 1;
          do
          :: k<=N -> dec[H(R(i,s),k)] = (k<=x -> dec[H(R(1-i,s),k)] : 0); k++
          :: else -> break
          od;
          k = 0
       :: msg==take ->
          if
          :: fence>=promised[R(i,s)] -> promised[R(i,s)] = fence; back[s]!taken,fence,rel[R(i,s)]
          :: else -> ok = 0
          fi
       :: msg==update && fence!=promised[R(i,s)] -> ok = 0
       :: msg==update && fence==promised[R(i,s)] && x==rel[R(i,s)]+1 ->
          if
          :: app[R(i,s)]==x && dec[H(R(i,s),x)]>=y
          :: else -> apply(i,s,x,y)
          fi;
          tell(i,x,s,1);
          back[s]!stable,x,dec[H(R(i,s),x)]
       :: msg==update && fence==promised[R(i,s)] && x!=rel[R(i,s)]+1
       :: msg==commit ->
          ok = app[R(i,s)]==x && dec[H(R(i,s),x)]==y && fence==promised[R(i,s)];
          if
          :: ok && x==rel[R(i,s)]+1 -> tell(i,x,s,1); back[s]!stable,x,y
          :: else
          fi
       :: msg==released ->
          if
          :: fence==promised[R(i,s)] && rel[R(i,s)]+1==x && app[R(i,s)]==x -> rel[R(i,s)] = x
          :: else -> ok = fence==promised[R(i,s)] && rel[R(i,s)]>=x
          fi
       :: msg==joined -> lacking[R(i,s)] = 0
       fi;
       if :: ok :: else -> cut(s) fi;
       check() }

  /* A head gets an answer of the second replica. */
  :: d_step { ON && HEADS(i,s) && linked[s] && nempty(back[s]) ->
       back[s]?msg,x,y;
       if
       :: msg==taken ->
          if :: x>lpromised[R(i,s)] -> lpromised[R(i,s)] = x :: else fi;
          ok = y==app[R(i,s)]
       :: msg==stable ->
          lstep[R(i,s)] = x; ldec[R(i,s)] = y;
          ok = x==app[R(i,s)] && y==KNOWN(R(i,s),app[R(i,s)])
       fi;
       if :: ok -> caughtUp(i,s) :: else fi;
       answer(i,s) }
  od
}

inline begin(by,step) {
  if
  :: line!=lineOf[by] -> assert(step>=top); /* B */ top = step; line = lineOf[by]; begins = step
  :: else -> assert(step==begins) /* B */
  fi
}

/* The step at which a line begins, from the states of both heads. */
inline beginning(r0,r1) {
  b = N+1;
  if
  :: standing[r0]==SETTLED -> b = rel[r0]
  :: standing[r0]!=SETTLED && standing[r1]==SETTLED -> b = rel[r1]
  :: standing[r0]!=SETTLED && standing[r1]!=SETTLED ->
     if :: standing[r0]==KEPT -> b = app[r0] :: else fi;
     if :: standing[r1]==KEPT && app[r1]<b -> b = app[r1] :: else fi;
     if
     :: standing[r0]==KEPT && standing[r1]==KEPT && KNOWN(r0,b) && KNOWN(r1,b) && KNOWN(r0,b)!=KNOWN(r1,b) -> b = b-1
     :: else
     fi
  fi
}

#define ALLGOT(i) (got[R(i,0)] && got[R(i,1)] && TOGETHER(i,1))

/* What the conductor on server i does with shard s. */
proctype Conductor(byte i; byte s) {
end:
  do
  /* A line begins. */
  :: d_step { ON && LEADS(i) && !decides[i] && ALLGOT(i) && standing[R(MATE(i,s),s)]!=SETTLED && lineOf[at[i]]>=line ->
       y = MATE(i,s); z = R(y,s);
       beginning(R(i,0),R(MATE(i,1),1));
       if
       :: b>N -> over = 1 /* both shards were restored from what was saved, one after the other */
       :: else -> begin(at[i],b)
       fi;
       if
       :: over
       :: !over && standing[z]==KEPT ->
          assert(b==rel[z] || b==app[z]); /* B */
          x = from[s]+1;
          assert(born[z]==birth[s]); /* S5 */
          do
          :: x<=b ->
             if :: !fin[x] -> fin[x] = dec[H(z,x)] :: else fi;
             assert(dec[H(z,x)]==fin[x]); x++ /* B */
          :: else -> break
          od
       :: !over && standing[z]==LOST -> birth[s]++; born[z] = birth[s]; from[s] = b
       fi;
       if
       :: over
       :: else ->
          standing[z] = SETTLED; rel[z] = b; app[z] = b; low[z] = b+1;
          x = b+1;
          do :: x<=N -> dec[H(z,x)] = 0; x++ :: else -> break od;
          if :: y==s && ALONE(at[y],s) -> format(y) :: else fi;
          check()
       fi }

  /* Both shards have promised its fence. The conductor knows no more than what they have said. */
  :: d_step { ON && s==0 && LEADS(i) && !decides[i] && ALLGOT(i) && standing[R(i,0)]==SETTLED && standing[R(MATE(i,1),1)]==SETTLED ->
       decides[i] = 1;
       y = R(i,0); z = R(MATE(i,1),1);
       crel[i] = (rel[y]>rel[z] -> rel[y] : rel[z]);
       assert(app[y]>=crel[i] && app[z]>=crel[i]);
       x = crel[i]+1;
       if
       :: app[y]==x && app[z]==x && dec[H(y,x)]==dec[H(z,x)] -> cdec[i] = dec[H(y,x)]
       :: else -> cdec[i] = (x<=N -> at[i] : 0)
       fi }

  /* A head gets the decision of a step. It applies the step, or replaces another decision of it, or has it already
   * and answers again. */
  :: d_step { ON && LEADS(i) && TOGETHER(i,s) && decides[i] && cdec[i] && rel[R(MATE(i,s),s)]==crel[i] && (sent[i] & (1<<s))==0 ->
       sent[i] = sent[i] | (1<<s);
       y = MATE(i,s); z = R(y,s); x = crel[i]+1;
       if
       :: app[z]==x && dec[H(z,x)]>=cdec[i] ->
          if :: linked[s] -> down[s]!commit,x,dec[H(z,x)],at[i] :: else fi
       :: else ->
          apply(y,s,x,cdec[i]);
          if :: linked[s] -> down[s]!update,x,cdec[i],at[i] :: else fi
       fi;
       tookStep(y,s);
       check() }

  /* The step is stable on both shards, so the conductor releases it. */
  :: d_step { ON && s==0 && LEADS(i) && decides[i] && (said[i] | (heard[2*i] & heard[2*i+1]))==3 ->
       crel[i] = crel[i]+1;
       x = crel[i];
       if
       :: lineOf[at[i]]==line ->
          assert(!fin[x] || fin[x]==cdec[i]); /* S1 */
          fin[x] = cdec[i];
          if :: x>top -> top = x :: else fi
       :: else -> assert(x<=begins) /* B */
       fi;
       cdec[i] = (x<N -> at[i] : 0); said[i] = 0; heard[2*i] = 0; heard[2*i+1] = 0; sent[i] = 0;
       check() }

  /* A head learns that its step is released. */
  :: d_step { ON && LEADS(i) && TOGETHER(i,s) && decides[i] && rel[R(MATE(i,s),s)]<crel[i] && app[R(MATE(i,s),s)]==crel[i] ->
       z = R(MATE(i,s),s);
       rel[z] = crel[i];
       keptStable[z] = 0; /* nobody waits for this answer any more */
       if :: linked[s] -> down[s]!released,crel[i],0,at[i] :: else fi;
       check() }
  od
}

inline forget(who,its) {
  z = R(who,its);
  has[z] = 0; lacking[z] = 0; standing[z] = 0; promised[z] = 0; rel[z] = 0; app[z] = 0; low[z] = 0; born[z] = 0;
  if :: who==its -> writes[who] = 0 :: else fi;
  y = 1;
  do :: y<=N -> dec[H(z,y)] = 0; y++ :: else -> break od
}

/* A server leaves its view. */
inline leave(who) {
  x = 0;
  do
  :: x<2 ->
     if
     :: up[1-who] && at[1-who]!=at[who] -> skip /* this connection belongs to the view of the other server, and stays */
     :: else -> cut(x)
     fi;
     z = R(who,x);
     keptTaken[z] = 0; keptStable[z] = 0; lpromised[z] = 0; lstep[z] = 0; ldec[z] = 0; next[z] = 0; got[z] = 0;
     x++
  :: else -> break
  od;
  decides[who] = 0; crel[who] = 0; cdec[who] = 0; said[who] = 0; heard[2*(who)] = 0; heard[2*(who)+1] = 0; sent[who] = 0
}

inline die(who) {
  leave(who);
  forget(who,0); forget(who,1);
  up[who] = 0; at[who] = 0
}

/* A server takes its shard back out of its file. */
inline recall(who,stands) {
  z = R(who,who);
  has[z] = 1; standing[z] = stands; born[z] = fborn[who]; app[z] = fapp[who]; rel[z] = flow[who]; low[z] = 0;
  y = 1;
  do :: y<=N -> dec[H(z,y)] = (y<=fapp[who] -> FD(who,y) : 0); y++ :: else -> break od
}

#define FILE(i) (fline[i] && ALONE(newest,i))

proctype Server(byte i) {
end:
  do
  /* It enters the newest view. */
  :: d_step { ON && up[i] && named[i] && at[i]<newest ->
       was = at[i]; ok = 1;
       leave(i);
       at[i] = newest;
       x = 0;
       do
       :: x<2 ->
          z = R(i,x);
          if
          :: !IN(i,x) -> forget(i,x)
          /* The line goes on with what the server has. */
          :: IN(i,x) && has[z] && was && goesOn[newest] && lineOf[was]==lineOf[newest] && was>=since[z] ->
             if
             :: HEAD(newest,x)==i -> assert(!lacking[z]); /* S5 */
                if
                :: i==x && ALONE(newest,i) && !writes[i] && standing[z]==SETTLED -> format(i); z = R(i,x)
                :: else
                fi
             :: else
             fi
          /* A line begins that keeps what the server has. */
          :: IN(i,x) && !(has[z] && was && goesOn[newest] && lineOf[was]==lineOf[newest] && was>=since[z]) &&
             HEAD(newest,x)==i && has[z] && was && lineOf[was]<lineOf[newest] && !lacking[z] && !lost[x] ->
             promised[z] = 0;
             if :: i==x -> writes[i] = 0 :: else fi;
             if :: standing[z]==SETTLED -> standing[z] = KEPT :: else fi
          :: else ->
             forget(i,x);
             if
             :: HEAD(newest,x)!=i -> has[z] = 1; lacking[z] = 1
             :: HEAD(newest,x)==i && lost[x] && !(goesOn[newest] && i==x && FILE(i) && fline[i]==lineOf[newest]) -> has[z] = 1; standing[z] = LOST
             :: HEAD(newest,x)==i && !(lost[x] && !(goesOn[newest] && i==x && FILE(i) && fline[i]==lineOf[newest])) ->
                if
                :: i==x && FILE(i) && goesOn[newest] && fline[i]==lineOf[newest] -> recall(i,SETTLED); writes[i] = 1; z = R(i,x)
                :: i==x && FILE(i) && !(goesOn[newest] && fline[i]==lineOf[newest]) && lineOf[newest]>1 && (fline[i]>=counts[i] || ANYFILE) && fline[i]<lineOf[newest] -> recall(i,KEPT); z = R(i,x)
                :: else -> ok = 0 /* the view relies on a state that the server does not have */
                fi
             fi
          fi;
          next[z] = (HEAD(newest,x)==i && CHAINED(x) -> (standing[z]==SETTLED -> COUNTS : JOINING) : NOBODY);
          if :: HEAD(newest,x)==i && has[z] -> promised[z] = at[i]; keptTaken[z] = at[i] :: else fi; /* its conductor asks it to promise the fence of the view */
          x++
       :: else -> break
       od;
       if
       :: ok
       :: else -> die(i)
       fi;
       check() }
  /* The conductor is in the view too. Heads tell it that they have promised its fence. */
  :: d_step { ON && LEADS(i) && keptTaken[R(i,0)] && next[R(i,0)]!=COUNTS -> answer(i,0) }
  :: d_step { ON && HEADS(i,1) && keptTaken[R(i,1)] && next[R(i,1)]!=COUNTS && up[MATE(i,0)] && at[MATE(i,0)]==at[i] -> answer(i,1) }

  /* It says that it has caught up. First it empties its file, so that no later process finds there what it had on an
   * earlier line. */
  :: d_step { ON && up[i] && here[i] && at[i] && (has[R(i,0)] || has[R(i,1)]) && at[i]==newest &&
       ((has[R(i,0)] && IN(i,0) && word[i]<since[R(i,0)]) || (has[R(i,1)] && IN(i,1) && word[i]<since[R(i,1)])) &&
       (ANYHOME || (!lacking[R(i,0)] && !lacking[R(i,1)])) && standing[R(i,0)]==SETTLED && standing[R(i,1)]==SETTLED ->
       word[i] = (since[R(i,0)]>since[R(i,1)] -> since[R(i,0)] : since[R(i,1)]);
       if :: !KEEPSFILE && SECOND(newest,i)==i -> fline[i] = 0 :: else fi;
       check() }

  /* It starts again. */
  :: d_step { ON && !up[i] -> up[i] = 1; here[i] = 1; lapsed[i] = 0; missed[i] = 0; named[i] = 0; word[i] = 0; holds[i] = fline[i] }
  /* Its lease expires. Or: it is back. Or: it has been away for longer than the time of --move-after. */
  :: d_step { ON && !up[i] && here[i] -> here[i] = 0 }
  :: d_step { ON && up[i] && !here[i] -> here[i] = 1; lapsed[i] = 1; missed[i] = 0 }
  :: d_step { ON && !here[i] && here[1-i] && !missed[i] -> missed[i] = 1 }
  od
}

#define LIVES(i) (here[i] && named[i] && (!lapsed[i] || FORGIVEN))
#define AWAITED(i) (here[i] || !missed[i])
#define LINE lineOf[newest]
#define HASIT(i,s) (here[i] && \
	((named[i] && (HEAD(newest,s)==(i) || word[i]>=since[R(i,s)])) || \
	 (!named[i] && HEAD(newest,s)==(i) && (i)==(s) && holds[i] && (counts[s]<=holds[i] || OLDFILE) && holds[i]<=LINE)))
#define DISPLACED (HEAD(newest,0)!=0 || HEAD(newest,1)!=1 || CHAINED(0) || CHAINED(1))
#define ISGONE(i) (INANY(i) && !LIVES(i))
#define ISCOME(i) (here[i] && !(INANY(i) && LIVES(i)))
#define HEADSANY(i) (HEAD(newest,0)==(i) || HEAD(newest,1)==(i))
#define FOUND(s) (HEAD(newest,s)==(s) && here[s] && !named[s] && holds[s]==LINE)
#define HELD(s) (here[HEAD(newest,s)] && (named[HEAD(newest,s)] || FOUND(s)))

/* The head and the second replica of a shard in a view on the same line. The head is NONE if no server has the
 * shard. */
inline rechain(its,hd,sd) {
  hd = HEAD(newest,its); sd = SECOND(newest,its);
  if :: sd!=NONE && !LIVES(sd) -> sd = NONE :: else fi;
  if
  :: LIVES(hd)
  :: else -> if :: sd!=NONE && HASIT(sd,its) -> hd = sd; sd = NONE :: else -> hd = NONE fi
  fi;
  if
  :: hd!=NONE ->
     x = (AWAITED(its) -> its : 1-its); /* the server that should head it */
     if
     :: hd==x -> sd = NONE
     :: hd!=x && sd==x && (HASIT(x,its) || ANYHOME) -> hd = x; sd = NONE
     :: hd!=x && sd!=x && here[x] -> sd = x
     :: else
     fi
  :: else
  fi
}

/* The server that keeps a shard when a line begins. NONE: no server has it. */
inline keeper(its,hd) {
  x = (here[its] -> its : 1-its);
  hd = NONE;
  if :: HASIT(HEAD(newest,its),its) -> hd = HEAD(newest,its) :: else fi;
  if :: SECOND(newest,its)!=NONE && HASIT(SECOND(newest,its),its) && (hd==NONE || (hd!=x && SECOND(newest,its)==x)) -> hd = SECOND(newest,its) :: else fi
}

inline put(h0_,s0_,h1_,s1_) {
  newest++;
  HEAD(newest,0) = h0_; SECOND(newest,0) = s0_; HEAD(newest,1) = h1_; SECOND(newest,1) = s1_;
  lapsed[0] = 0; lapsed[1] = 0
}

proctype Coordinator() {
end:
  do
  :: d_step { ON && newest==VIEWS -> over = 1 } /* the bound that the head of this file speaks of */
  :: d_step { ON && newest<VIEWS && (here[0] || here[1]) && (DISPLACED || ISGONE(0) || ISGONE(1) || ISCOME(0) || ISCOME(1) || lapsed[0] || lapsed[1]) ->
       ok = 0; /* 1: the coordinator has made up its mind */
       if
       :: DISPLACED ->
          rechain(0,h0,l0); rechain(1,h1,l1);
          if
          :: h0!=NONE && h1!=NONE ->
             ok = 1;
             w0 = ISCOME(0); w1 = ISCOME(1);
             if
             :: !(ISGONE(0) || ISGONE(1) || w0 || w1) && h0==HEAD(newest,0) && l0==SECOND(newest,0) && h1==HEAD(newest,1) && l1==SECOND(newest,1)
             :: else ->
                y = newest;
                put(h0,l0,h1,l1);
                lineOf[newest] = lineOf[y]; goesOn[newest] = 1;
                x = 0;
                do
                :: x<4 ->
                   if
                   :: (x/2==0 -> w0 : w1) || !(HEAD(y,x%2)==x/2 || SECOND(y,x%2)==x/2) -> since[x] = newest
                   :: else
                   fi;
                   x++
                :: else -> break
                od;
                if :: w0 -> named[0] = 1 :: else fi;
                if :: w1 -> named[1] = 1 :: else fi
             fi
          :: else
          fi
       :: else
       fi;
       if
       :: !ok && ((!here[0] && AWAITED(0) && HEADSANY(0)) || (!here[1] && AWAITED(1) && HEADSANY(1))) -> ok = 1
       :: else
       fi;
       if
       :: !ok && !((!here[0] && HEADSANY(0)) || (!here[1] && HEADSANY(1)) || (here[0] && !named[0]) || (here[1] && !named[1]) ||
          (!FORGIVEN && ((here[0] && lapsed[0]) || (here[1] && lapsed[1])))) -> ok = 1
       :: else
       fi;
       if
       :: !ok && HELD(0) && HELD(1) && (FOUND(0) || FOUND(1)) ->
          y = newest; ok = 1;
          w0 = LIVES(0); w1 = LIVES(1);
          put(HEAD(y,0),NONE,HEAD(y,1),NONE);
          lineOf[newest] = lineOf[y]; goesOn[newest] = 1;
          if :: w0 :: else -> since[0] = 0; since[1] = 0 fi;
          if :: w1 :: else -> since[2] = 0; since[3] = 0 fi;
          if :: here[0] -> named[0] = 1 :: else fi;
          if :: here[1] -> named[1] = 1 :: else fi
       :: else
       fi;
       if
       :: !ok ->
          keeper(0,h0); keeper(1,h1);
          assert(!(h0==NONE && RELIED(0,0) && here[0]) && !(h1==NONE && RELIED(0,1) && here[0]) && !(h0==NONE && RELIED(1,0) && here[1]) && !(h1==NONE && RELIED(1,1) && here[1])); /* M */
          if
          :: h0==NONE && h1==NONE -> over = 1
          :: else ->
             y = newest;
             l0 = (h0==NONE); l1 = (h1==NONE);
             if :: h0==NONE -> h0 = (here[0] -> 0 : 1) :: else fi;
             if :: h1==NONE -> h1 = (here[1] -> 1 : 0) :: else fi;
             put(h0,NONE,h1,NONE);
             lineOf[newest] = lineOf[y]+1;
             lost[0] = l0; lost[1] = l1;
             if :: l0 -> counts[0] = lineOf[newest] :: else fi;
             if :: l1 -> counts[1] = lineOf[newest] :: else fi;
             since[0] = 0; since[1] = 0; since[2] = 0; since[3] = 0;
             if :: here[0] -> named[0] = 1 :: else fi;
             if :: here[1] -> named[1] = 1 :: else fi
          fi
       :: else
       fi;
       h0 = 0; h1 = 0; w0 = 0; w1 = 0; l0 = 0; l1 = 0;
       check() }
  od
}

/* The faults of server i. */
proctype Faults(byte i) {
end:
  do
  /* Its process is killed. Or its host is lost, and the file with it. */
  :: d_step { ON && faults && up[i] -> faults--; die(i) }
  :: d_step { ON && faults && up[i] -> faults--; die(i); fline[i] = 0 }
  /* Its lease expires, and it does not know. */
  :: d_step { ON && faults && up[i] && here[i] -> faults--; here[i] = 0 }
  od
}

init {
  d_step {
    lineOf[1] = 1; HEAD(1,1) = 1; SECOND(1,0) = NONE; SECOND(1,1) = NONE;
    named[0] = 1; named[1] = 1; counts[0] = 1; counts[1] = 1;
    x = 0;
    do
    :: x<2 ->
       z = R(x,x);
       has[z] = 1; promised[z] = 1; keptTaken[z] = 1; writes[x] = 1; fline[x] = 1;
       x++
    :: else -> break
    od
  };
  atomic {
    run Replica(0,0); run Replica(0,1); run Replica(1,0); run Replica(1,1);
    run Conductor(0,0); run Conductor(0,1); run Conductor(1,0); run Conductor(1,1);
    run Server(0); run Server(1); run Coordinator(); run Faults(0); run Faults(1)
  };
  (top==N || over) /* L */
}
