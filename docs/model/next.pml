/* A model for Spin of chains in which the next replica answers for those behind it: one shard with three replicas on
 * three servers, with the conductor beside its head, and another shard that is never lost, for all others of a run.
 *
 * It describes what server/shard (next.go), server/chain and recovery/roster (chains.go) do together with --recovery
 * chain:next. protocol.pml has what is common to all chains.
 *
 * A step is stable when the head and the next replica have it: the head says so, or both say it for themselves. The next replica answers for a step when the replica behind
 * it has the step before. Each replica further down answers when the one behind it has the step itself. So a replica that
 * was behind the next one in any view may lack steps. If it becomes the next replica, the view says so (Moved), and others
 * rely on it only when it has said that it has caught up. If only replicas are left that may lack steps, the line is over.
 * The first of them heads the shard with what it knows to be released, the other shard keeps what it has, and the
 * conductor begins the next line where the other shard stands.
 *
 * Faults, F of them: a server is killed (and starts again at any later time, or never); a server is taken for dead
 * although it is alive; a connection within the chain breaks. With STAY=1, a server that is gone stays away. With
 * STANDIN=1, the last server begins as a stand-in for the next replica, and is not needed any more.
 *
 * What must hold (others rely on the head and on the next replica, once they have said that they have everything):
 *   S1  a step is released with one decision, which all that others rely on have applied
 *   S3  what was released is applied by all that others rely on
 *   S4  shards are at most one step apart
 *   S5  on a line that goes on, no replica that may lack steps heads the shard
 *   B   a line begins no earlier than the one before has got, and all shards begin it at one step. The shard falls back
 *       by at most two released steps, to a released version, and by none if only one server has died
 *   L   the run ends, unless nobody has the shard any more
 *
 * Not modelled: gradients and workers (a decision is its fence, and one that is made anew is another one), parameters,
 * more than three replicas unless S says so, kernels that take time (Waits), a conductor that connects again, saving. A
 * conductor takes a head as soon as it enters a view. The other shard is one replica that does not die.
 *
 * By hand:  spin -DN=2 -DF=1 -a next.pml && cc -O2 -DSAFETY -DCOLLAPSE -DVECTORSZ=4096 -o pan pan.c && ./pan -m1000000
 *
 * Results (Spin 6.5.2), without errors: two steps and one fault, all 1,814,442 states; two steps, one fault and a
 * stand-in, all 1,106,283. With hashes of states in place of states (-DHC4): three steps and one fault, 5,302,898; four
 * steps, two faults and STAY=1, 4,387,441. Two faults whose servers come back were tried in part: 25 million states of
 * two steps.
 *
 * Rules can be taken away, to see what each is for.
 *   S3 is broken with -DANYNEXT=1 (a head answers without the next replica).
 *   S5 is broken, with two faults and STAY=1, by -DUNMOVED=1 (a replica that becomes the next one counts as whole),
 *      -DSAYSSO=1 (it says at once that it has caught up) and -DNOLOSS=1 (any replica that is left goes on with the line).
 *   B  is broken, with four steps, two faults and STAY=1, by -DFAR=1 (a replica answers for any number of steps before
 *      those behind it have answered) and -DUNWAITED=1 (a replica that is far behind is not waited for); with three steps
 *      by -DAPPLIED=1 (a shard falls back to what was applied last, released or not); and with two steps, one fault and
 *      STANDIN=1 by -DLETSGO=1 (a stand-in for the next replica lets go).
 *   L  is broken, with two steps and one fault, by -DGAP=1 (a replica that skips steps by a snapshot does not send it on).
 * Before this model, the code did as with -DLETSGO=1 and -DGAP=1. With -DANYTAKE=1 (a replica answers a take without those behind
 * it) nothing was found, with two steps, two faults and STAY=1.
 */
#ifndef N
#define N 3 /* steps */
#endif
#ifndef F
#define F 2 /* faults */
#endif
#ifndef S
#define S 3 /* servers, three at least */
#endif
#ifndef STANDIN
#define STANDIN 0
#endif
#ifndef ANYNEXT
#define ANYNEXT 0
#endif
#ifndef ANYTAKE
#define ANYTAKE 0
#endif
#ifndef FAR
#define FAR 0
#endif
#ifndef UNMOVED
#define UNMOVED 0
#endif
#ifndef SAYSSO
#define SAYSSO 0
#endif
#ifndef NOLOSS
#define NOLOSS 0
#endif
#ifndef APPLIED
#define APPLIED 0
#endif
#ifndef UNWAITED
#define UNWAITED 0
#endif
#ifndef LETSGO
#define LETSGO 0
#endif
#ifndef GAP
#define GAP 0
#endif
#ifndef STAY
#define STAY 0
#endif

#define VIEWS (2*F+2+STANDIN)
#define ON (top<N && !over)

mtype = { snapshot, take, update, commit, released, joined, taken, stable };

byte faults = F;
byte deaths;     /* servers that were killed or taken for dead */
byte top;        /* newest step that was released; after a line has begun, the step at which it began */
byte want[N+1];  /* by step: the decision with which the shard has it on the present line; 0: the shard fell back behind it */
byte line = 1;   /* the line that has begun last */
byte begins;     /* the step at which that line began */
byte least;      /* the newest step that the shard still had when that line began */
bit over;        /* no server is left that has the shard: all shards would go back to a checkpoint */

/* Views, by number. The fence of a conductor is the number of its view. */
byte newest = 1;
byte size[VIEWS+1];       /* by view: the length of its chain */
byte chain[(VIEWS+1)*S]; /* by view and place: the server there */
byte lineOf[VIEWS+1];
#define AT(v,p) chain[(v)*S+(p)]

/* About the newest view. */
byte pl[S];     /* by server: its place in the chain, from 1; 0: it is not in the view */
bit named[S];   /* the view names its present life */
byte since[S];  /* the view that took it in; 0: it was there when the line began */
byte moved;     /* the view that made a replica from further down the next one; 0: there was none */

/* Servers. */
bit up[S];
bit away[S];  /* it lives, but the coordinator takes it for dead */
byte at[S];   /* the view in which it is; 0: none */
byte place[S];
bit has[S];   /* it has a replica */
byte word[S]; /* the newest view for which it has said that it has caught up */
byte due[S];  /* the view for which it must say so; 0: none */

/* Replicas. */
byte promised[S], rel[S], app[S], low[S]; /* low: the oldest step whose decision it knows */
bit lacking[S], behind[S], lost[S];       /* lost: it heads a shard that fell back, and the line has not begun */
byte dec[S*(N+1)];
#define D(i,t) dec[(i)*(N+1)+(t)]
#define KNOWN(i,t) ((t)>=low[i] && (t)<=app[i] -> D(i,t) : 0)

/* What a replica knows of the replica behind it. */
#define NOBODY 0
#define COUNTS 1
#define JOINING 2
byte next[S], lpromised[S], lstep[S], ldec[S];
bit told[S], ahead[S]; /* ahead: it has answered for step ustep before the replica behind it has */
byte ustep[S], udec[S];
byte keptTaken[S], keptStable[S], keptDec[S];
bit linked[S];
chan down[S] = [16] of { mtype, byte, byte, byte }; /* step, decided, fence; of a snapshot: whether the decision is known */
chan back[S] = [16] of { mtype, byte, byte };       /* taken: fence, released. stable: step, decided */

/* The other shard, which is never lost. */
byte oat = 1, orel, oapp, odec;
bit kept; /* its line has not begun yet */

/* The conductor on server i. */
bit gotHead[S], decides[S], sent[S], saidHead[S], saidOther[S];
bit saidSelf[S], saidNext[S]; /* the head has said that it has applied the step, and the next replica what it answers the head */
byte crel[S], cdec[S];

hidden byte k, x, y, z, u, fence, hd, hp, n, fell;
hidden byte ok, near, last, here;
hidden mtype msg;
hidden byte stay[S+1];

#define LIVES(i) (up[i] && !away[i] && named[i] && pl[i])
#define COMES(i) (up[i] && !away[i] && !(named[i] && pl[i]) && WANTED(i))
#define HAS(i) (pl[i]==1 || word[i]>=since[i])
#define MAYLACK(i) (!NOLOSS && (pl[i]>2 || (!UNMOVED && pl[i]==2 && word[i]<moved)))
#define WANTED(i) (!STANDIN || (i)!=S-1)

#define LEADS(i) (up[i] && at[i] && has[i] && place[i]==0)
#define OTHER(i) (oat==at[i])
#define AFTER(i) (place[i]+1<size[at[i]])
#define BEFORE(i) AT(at[i],place[i]-1)
#define FOLLOWS(i) (up[i] && at[i] && has[i] && place[i]>0 && up[BEFORE(i)] && at[BEFORE(i)]==at[i] && has[BEFORE(i)])

/* Others rely on the replica of server i: it is the head or the next replica, and is known to have everything. */
#define RELIED(i) (up[i] && named[i] && pl[i] && has[i] && at[i] && pl[i]<=2 && HAS(i) && !(pl[i]==2 && word[i]<moved) && \
	lineOf[at[i]]==lineOf[newest] && line==lineOf[newest] && !lost[i] && since[i]<=at[i])

inline check() {
  k = 0;
  do
  :: k<S ->
     if
     :: RELIED(k) ->
        assert(app[k]>=top); /* S3 */
        x = 1;
        do
        :: x<=top -> assert(D(k,x)==want[x]); x++ /* S1, S3 */
        :: else -> break
        od;
        assert(kept || lineOf[oat]!=line || (app[k]<=oapp+1 && oapp<=app[k]+1)) /* S4 */
     :: else
     fi;
     k++
  :: else -> break
  od;
  k = 0
}

inline cut(link) {
  do :: len(down[link])>0 -> down[link]?_,_,_,_ :: len(down[link])==0 -> break od;
  do :: len(back[link])>0 -> back[link]?_,_,_ :: len(back[link])==0 -> break od;
  linked[link] = 0
}

/* A server leaves its view. */
inline leave(who) {
  cut(who);
  if
  :: at[who] && has[who] && place[who]>0 ->
     u = BEFORE(who);
     if :: at[u]==at[who] -> cut(u) :: else fi
  :: else
  fi;
  next[who] = 0; lpromised[who] = 0; lstep[who] = 0; ldec[who] = 0; told[who] = 0; ahead[who] = 0; ustep[who] = 0; udec[who] = 0;
  keptTaken[who] = 0; keptStable[who] = 0; keptDec[who] = 0;
  gotHead[who] = 0; decides[who] = 0; sent[who] = 0; saidHead[who] = 0; saidSelf[who] = 0; saidNext[who] = 0; saidOther[who] = 0; crel[who] = 0; cdec[who] = 0;
  due[who] = 0; place[who] = 0
}

inline forget(who) {
  has[who] = 0; promised[who] = 0; rel[who] = 0; app[who] = 0; low[who] = 0; lacking[who] = 0; behind[who] = 0; lost[who] = 0;
  y = 0;
  do :: y<=N -> D(who,y) = 0; y++ :: else -> break od
}

/* A replica sends those answers that no longer wait for the replica behind it: to the replica before it, or, as the
 * head, to the conductor. */
inline ready(who) {
  if
  :: keptTaken[who] && (ANYTAKE || next[who]!=COUNTS || lpromised[who]>=keptTaken[who]) ->
     if
     :: place[who]==0 && keptTaken[who]==at[who] -> gotHead[who] = 1
     :: place[who]>0 && linked[BEFORE(who)] -> back[BEFORE(who)]!taken,keptTaken[who],rel[who]
     :: else
     fi;
     keptTaken[who] = 0
  :: else
  fi;
  if
  :: keptStable[who] ->
     here = (ANYNEXT && place[who]==0) || (FAR && place[who]>0) || next[who]!=COUNTS || (lstep[who]==keptStable[who] && ldec[who]==keptDec[who]);
     if
     :: !here && place[who]==1 && !ahead[who] -> ahead[who] = 1; ustep[who] = keptStable[who]; udec[who] = keptDec[who]; here = 1
     :: else
     fi;
     if
     :: here && place[who]==0 ->
        if
        :: decides[who] && cdec[who] && crel[who]+1==keptStable[who] -> assert(keptDec[who]==cdec[who]); saidHead[who] = 1
        :: else
        fi;
        keptStable[who] = 0; keptDec[who] = 0
     :: here && place[who]>0 ->
        hd = AT(at[who],0);
        if
        :: place[who]==1 && up[hd] && at[hd]==at[who] && decides[hd] && cdec[hd] && crel[hd]+1==keptStable[who] && keptDec[who]==cdec[hd] -> saidNext[hd] = 1
        :: else
        fi;
        if
        :: linked[BEFORE(who)] -> back[BEFORE(who)]!stable,keptStable[who],keptDec[who]
        :: else
        fi;
        keptStable[who] = 0; keptDec[who] = 0
     :: else
     fi
  :: else
  fi
}

inline hand(who,what,p1,p2,p3) {
  if :: AFTER(who) && linked[who] -> down[who]!what,p1,p2,p3 :: else fi
}

/* The replica behind has everything that this one has. */
inline caughtUp(who) {
  if
  :: next[who]==JOINING || (next[who]==COUNTS && !told[who]) -> next[who] = COUNTS; told[who] = 1; hand(who,joined,0,0,0)
  :: else
  fi
}

inline applied(who,step,decided,fenceOf) {
  app[who] = step; D(who,step) = decided;
  if :: low[who]+1<step -> low[who] = step-1 :: else fi;
  hand(who,update,step,decided,fenceOf);
  answers(who)
}

inline answers(who) {
  keptStable[who] = app[who]; keptDec[who] = D(who,app[who]);
  if
  :: place[who]==0 && decides[who] && cdec[who] && crel[who]+1==app[who] -> assert(keptDec[who]==cdec[who]); saidSelf[who] = 1
  :: else
  fi;
  if
  :: lstep[who]==keptStable[who] && ldec[who]==keptDec[who] -> caughtUp(who)
  :: else
  fi;
  ready(who)
}

/* A replica gets a commit or an update under the fence that it has promised. */
inline obeys(who,step,decided,fenceOf) {
  if
  :: lost[who] || step!=rel[who]+1
  :: else ->
     if
     :: app[who]==step && D(who,step)>=decided -> hand(who,commit,step,D(who,step),fenceOf); answers(who)
     :: else -> applied(who,step,decided,fenceOf)
     fi
  fi
}

proctype Replica(byte i) {
end:
  do
  /* It connects to the replica before it and says which steps it has. That one sends what it lacks. */
  :: d_step { ON && FOLLOWS(i) && !linked[BEFORE(i)] && !lacking[BEFORE(i)] && !lost[BEFORE(i)] ->
       u = BEFORE(i);
       y = KNOWN(i,app[i]);
       last = !lacking[i] && rel[i]<=app[i] && app[i]+1==rel[u] && rel[u]==app[u] && y!=0 && y==KNOWN(u,app[i]);
       near = !lacking[i] && (rel[i]==rel[u] || (rel[i]+1==rel[u] && app[i]==rel[u] && y==KNOWN(u,rel[u])));
       cut(u);
       linked[u] = 1;
       lpromised[u] = 0; lstep[u] = 0; ldec[u] = 0; told[u] = 0;
       if
       :: near || (!UNWAITED && !lacking[i]) -> next[u] = COUNTS
       :: else -> next[u] = JOINING; ahead[u] = 0; ustep[u] = 0; udec[u] = 0; ready(u)
       fi;
       if :: !near && !last -> down[u]!snapshot,rel[u],KNOWN(u,rel[u])!=0,0 :: else fi;
       if :: promised[u] -> down[u]!take,0,0,promised[u] :: else fi;
       if
       :: last ->
          if :: rel[i]<app[i] -> down[u]!released,app[i],0,promised[u] :: else fi;
          down[u]!update,app[u],D(u,app[u]),promised[u];
          down[u]!released,rel[u],0,promised[u]
       :: !last && near && rel[i]<rel[u] -> down[u]!released,rel[u],0,promised[u]
       :: else
       fi;
       if
       :: app[u]>rel[u] && near && app[i]==app[u] && y==D(u,app[u]) -> down[u]!commit,app[u],D(u,app[u]),promised[u]
       :: app[u]>rel[u] && !(near && app[i]==app[u] && y==D(u,app[u])) -> down[u]!update,app[u],D(u,app[u]),promised[u]
       :: else
       fi }

  /* It does what the replica before it says, as the head does what the conductor says. If it cannot, it connects
   * again. */
  :: d_step { ON && FOLLOWS(i) && linked[BEFORE(i)] && nempty(down[BEFORE(i)]) ->
       u = BEFORE(i);
       down[u]?msg,x,y,fence;
       ok = 1;
       if
       :: msg==snapshot ->
          rel[i] = x; app[i] = x; low[i] = x+1-y;
          z = 1;
          do
          :: z<=N -> D(i,z) = (z<=x -> D(u,z) : 0); z++
          :: else -> break
          od;
          if
          :: !GAP -> hand(i,snapshot,x,y,0); hand(i,take,0,0,promised[i])
          :: else
          fi
       :: msg==joined ->
          lacking[i] = 0;
          if :: place[i]==1 -> behind[i] = 0 :: else fi
       :: msg==take ->
          if
          :: fence>=promised[i] -> promised[i] = fence; hand(i,take,0,0,fence); keptTaken[i] = fence; ready(i)
          :: else -> ok = 0
          fi
       :: msg==update ->
          if
          :: fence==promised[i] -> obeys(i,x,y,fence)
          :: else -> ok = 0
          fi
       :: msg==commit ->
          if
          :: app[i]==x && D(i,x)==y && fence==promised[i] -> obeys(i,x,y,fence)
          :: else -> ok = 0
          fi
       :: msg==released ->
          if
          :: fence==promised[i] && rel[i]+1==x && app[i]==x -> rel[i] = x; hand(i,released,x,0,fence)
          :: else -> ok = fence==promised[i] && rel[i]>=x
          fi
       fi;
       if :: ok :: else -> cut(u) fi;
       check() }

  /* It gets an answer of the replica behind it. */
  :: d_step { ON && up[i] && at[i] && has[i] && linked[i] && nempty(back[i]) ->
       back[i]?msg,x,y;
       if
       :: msg==taken ->
          if :: x>lpromised[i] -> lpromised[i] = x :: else fi;
          ok = y==app[i];
          if :: ahead[i] && y>=ustep[i] -> ahead[i] = 0; ustep[i] = 0; udec[i] = 0 :: else fi
       :: msg==stable ->
          lstep[i] = x; ldec[i] = y;
          ok = x==app[i] && y==KNOWN(i,app[i]);
          if :: ahead[i] && (x>ustep[i] || (x==ustep[i] && y==udec[i])) -> ahead[i] = 0; ustep[i] = 0; udec[i] = 0 :: else fi
       fi;
       if :: ok -> caughtUp(i) :: else fi;
       ready(i) }
  od
}

inline begin(by,step) {
  if
  :: line!=lineOf[by] ->
     assert(step>=top); /* B */
     least = top; top = step; line = lineOf[by]; begins = step
  :: else -> assert(step==begins)
  fi
}

/* What the conductor on server i does. */
proctype Conductor(byte i) {
end:
  do
  /* A line begins at the step that the other shard has. */
  :: d_step { ON && LEADS(i) && OTHER(i) && !decides[i] && gotHead[i] && lost[i] && lineOf[at[i]]>=line ->
       x = (kept -> oapp : orel);
       fell = (APPLIED -> app[i] : rel[i]);
       begin(at[i],x);
       assert(fell+2>=least); /* B */
       assert(fell>=least || deaths>=2); /* B */
       y = 1;
       do
       :: y<=N && y<=fell -> assert(D(i,y)==want[y]); y++ /* B */
       :: y<=N && y>fell -> D(i,y) = 0; want[y] = 0; y++
       :: else -> break
       od;
       least = fell;
       rel[i] = x; app[i] = x; low[i] = x+1; lost[i] = 0;
       check() }
  :: d_step { ON && LEADS(i) && OTHER(i) && !decides[i] && gotHead[i] && kept && lineOf[at[i]]>=line ->
       x = (lost[i] -> oapp : rel[i]);
       if
       :: lost[i] -> begin(at[i],x)
       :: else
       fi;
       assert(x==orel || x==oapp);
       orel = x; oapp = x; odec = 0; kept = 0 }

  /* Both shards have promised its fence. The conductor knows no more than what they have said. */
  :: d_step { ON && LEADS(i) && OTHER(i) && !decides[i] && gotHead[i] && !lost[i] && !kept ->
       decides[i] = 1;
       crel[i] = (rel[i]>orel -> rel[i] : orel);
       assert(app[i]>=crel[i] && oapp>=crel[i]);
       x = crel[i]+1;
       if
       :: app[i]==x && oapp==x && D(i,x)==odec -> cdec[i] = odec
       :: else -> cdec[i] = (x<=N -> at[i] : 0) /* a new decision */
       fi }

  /* A head gets the decision of a step. It applies the step, or replaces another decision of it, or has it already
   * and answers again. */
  :: d_step { ON && LEADS(i) && decides[i] && cdec[i] && !sent[i] && rel[i]==crel[i] ->
       sent[i] = 1;
       x = crel[i]+1;
       obeys(i,x,cdec[i],at[i]);
       check() }
  :: d_step { ON && LEADS(i) && decides[i] && cdec[i] && OTHER(i) && !saidOther[i] && orel==crel[i] ->
       saidOther[i] = 1;
       x = crel[i]+1;
       if
       :: oapp==x && odec>=cdec[i] -> assert(odec==cdec[i])
       :: else -> oapp = x; odec = cdec[i]
       fi;
       check() }

  /* The step is stable on both shards, so the conductor releases it. */
  :: d_step { ON && LEADS(i) && decides[i] && (saidHead[i] || (saidSelf[i] && saidNext[i])) && saidOther[i] ->
       crel[i] = crel[i]+1;
       x = crel[i];
       if
       :: lineOf[at[i]]==line ->
          assert(!want[x] || want[x]==cdec[i]); /* S1 */
          want[x] = cdec[i];
          if :: x>top -> top = x :: else fi
       :: else -> assert(x<=begins && x<=least+2) /* B */
       fi;
       cdec[i] = (x<N -> at[i] : 0); sent[i] = 0; saidHead[i] = 0; saidSelf[i] = 0; saidNext[i] = 0; saidOther[i] = 0;
       check() }

  /* A head learns that its step is released. */
  :: d_step { ON && LEADS(i) && decides[i] && rel[i]<crel[i] && app[i]==crel[i] ->
       rel[i] = crel[i];
       keptStable[i] = 0; keptDec[i] = 0; /* nobody waits for this answer any more */
       hand(i,released,rel[i],0,at[i]);
       check() }
  :: d_step { ON && LEADS(i) && decides[i] && OTHER(i) && orel<crel[i] && oapp==crel[i] -> orel = crel[i]; check() }
  od
}

proctype Server(byte i) {
end:
  do
  /* It enters the newest view. If the line goes on with what it has, it keeps that. If it heads a line that begins,
   * it keeps what it knows to be released. Otherwise it has nothing. */
  :: d_step { ON && up[i] && named[i] && at[i]<newest ->
       x = at[i]; z = place[i];
       here = has[i] && x;
       ok = here && x>=since[i] && lineOf[x]==lineOf[newest];
       near = here && lineOf[x]<lineOf[newest] && !lacking[i] && pl[i]==1;
       leave(i);
       at[i] = newest;
       if
       :: !pl[i] -> forget(i)
       :: else ->
          place[i] = pl[i]-1;
          if
          :: ok -> behind[i] = behind[i] || z>1
          :: !ok && near -> lost[i] = 1; behind[i] = 0; promised[i] = 0
          :: else ->
             forget(i);
             has[i] = 1; lacking[i] = 1;
             assert(pl[i]>1) /* S5 */
          fi;
          if
          :: !AFTER(i)
          :: AFTER(i) && (lacking[i] || lost[i]) -> next[i] = JOINING
          :: else ->
             next[i] = COUNTS;
             if :: place[i]==1 -> ahead[i] = 1; ustep[i] = app[i]; udec[i] = KNOWN(i,app[i]) :: else fi
          fi;
          if :: place[i]==0 -> promised[i] = at[i]; keptTaken[i] = at[i]; ready(i) :: else fi; /* its conductor asks it to promise the fence of the view */
          due[i] = since[i];
          if :: pl[i]==2 && moved>due[i] -> due[i] = moved :: else fi;
          assert(place[i]>0 || !(lacking[i] || behind[i])) /* S5 */
       fi;
       check() }

  /* It says that it has caught up. */
  :: d_step { ON && up[i] && at[i] && has[i] && word[i]<due[i] && !lacking[i] && !lost[i] && (SAYSSO || !(place[i]==1 && behind[i])) -> word[i] = due[i]; check() }

  /* Its process starts again. Or: the coordinator learns that it was not dead. */
  :: d_step { ON && !STAY && !up[i] && WANTED(i) -> up[i] = 1 }
  :: d_step { ON && !STAY && away[i] -> away[i] = 0 }
  od
}

proctype Other() {
end:
  do
  :: d_step { ON && oat<newest ->
       if :: lineOf[oat]<lineOf[newest] -> kept = 1 :: else fi;
       oat = newest;
       check() }
  od
}

/* When a new view is needed: a server has gone, or comes, or the stand-in is no longer needed. */
#define GONE(i) (pl[i] && !LIVES(i))
#define SETTLED(i) (LIVES(i) && HAS(i))
#define RELIEF (STANDIN && LIVES(S-1) && SETTLED(0) && SETTLED(1) && (S==3 || SETTLED(2)) && pl[S-1]>1 && (pl[S-1]!=2 || LETSGO))
#if S==3
#define CHANGE (GONE(0) || GONE(1) || GONE(2) || COMES(0) || COMES(1) || COMES(2) || RELIEF)
#else
#define CHANGE (GONE(0) || GONE(1) || GONE(2) || GONE(3) || COMES(0) || COMES(1) || COMES(2) || COMES(3) || RELIEF)
#endif

proctype Coordinator() {
end:
  do
  :: d_step { ON && CHANGE ->
       n = 0; hd = S; x = 0; ok = RELIEF;
       do
       :: x<size[newest] ->
          y = AT(newest,x);
          if
          :: LIVES(y) ->
             if :: hd==S && HAS(y) -> hd = y; hp = n :: else fi;
             stay[n] = y; n++
          :: else
          fi;
          x++
       :: else -> break
       od;
       if
       :: hd==S -> over = 1
       :: else ->
          assert(newest<VIEWS);
          ok = ok && n==size[newest];
          here = MAYLACK(hd);
          if
          :: here -> /* the line is over: the first server that is left begins another */
             do :: hp>0 -> stay[hp] = stay[hp-1]; hp-- :: else -> break od;
             stay[0] = hd
          :: else
          fi;
          fell = n; /* the number of servers that stay */
          x = 0;
          do
          :: x<S ->
             if
             :: COMES(x) -> stay[n] = x; n++; ok = 0
             :: else
             fi;
             x++
          :: else -> break
          od;
          z = (fell>1 -> pl[stay[1]] : 0);
          newest++;
          lineOf[newest] = lineOf[newest-1]+here;
          x = 0; y = 0;
          do
          :: x<n ->
             if
             :: ok && stay[x]==S-1
             :: else -> AT(newest,y) = stay[x]; y++
             fi;
             x++
          :: else -> break
          od;
          size[newest] = y;
          if
          :: here -> moved = 0
          :: !here && y>1 && pl[AT(newest,1)]>2 && (LIVES(AT(newest,1))) -> moved = newest
          :: else
          fi;
          x = 0;
          do
          :: x<S -> pl[x] = 0; x++
          :: else -> break
          od;
          x = 0;
          do
          :: x<y ->
             u = AT(newest,x);
             pl[u] = x+1;
             if :: here || x>=fell -> since[u] = newest; named[u] = 1 :: else fi;
             x++
          :: else -> break
          od;
          u = 0; z = 0; hp = 0; hd = 0
       fi;
       check() }
  od
}

/* The faults of server i and of its connection to the replica behind it. */
proctype Faults(byte i) {
end:
  do
  /* A server is killed. */
  :: d_step { ON && faults && up[i] ->
       faults--; deaths++;
       leave(i); forget(i);
       up[i] = 0; away[i] = 0; named[i] = 0; at[i] = 0; word[i] = 0 }

  /* The coordinator takes it for dead, and it does not know. */
  :: d_step { ON && faults && LIVES(i) -> faults--; deaths++; away[i] = 1 }

  /* A connection within the chain breaks. */
  :: d_step { ON && faults && linked[i] -> faults--; cut(i) }
  od
}

init {
  d_step {
    size[1] = S; lineOf[1] = 1;
    x = 0;
    do
    :: x<S ->
       /* the stand-in is the next replica, or with STANDIN=2 the one behind that */
       y = (STANDIN==0 || x<STANDIN -> x : (x==STANDIN -> S-1 : x-1));
       AT(1,x) = y; pl[y] = x+1; place[y] = x; named[y] = 1; up[y] = 1; at[y] = 1; has[y] = 1;
       next[y] = (x+1<S -> COUNTS : NOBODY);
       if :: x==1 && x+1<S -> ahead[y] = 1 :: else fi;
       if :: x==0 -> promised[y] = 1; keptTaken[y] = 1 :: else fi;
       x++
    :: else -> break
    od
  };
  atomic {
    run Replica(0); run Replica(1); run Replica(2);
    run Conductor(0); run Conductor(1); run Conductor(2);
    run Server(0); run Server(1); run Server(2);
#if S>3
    run Replica(3); run Conductor(3); run Server(3); run Faults(3);
#endif
    run Other(); run Coordinator(); run Faults(0); run Faults(1); run Faults(2)
  };
  (top==N || over) /* L */
}
