import sys, heapq, time, random, tempfile, json, statistics, logging, cProfile, pstats
from datetime import timedelta
from benchmarks import month
from benchmarks.month import BEGIN, ids_by
from climate.cmd import bootstrap
from climate.config import registry as config_registry
from climate.core.lease.wait_list import WaitListRules
from climate.db.engine import schema
from climate.db.events import queue as event_queue
from climate.manager.events.dispatcher import Dispatcher
from climate.manager.wait_list.passes import place_waiting
from climate.manager.audit.invariants import violations
from tests.support.clock import ManualClock
def jobs(path, most):
    out=[]
    for line in open(path):
        if line.startswith(';'): continue
        f=line.split()
        submit,run,procs,req,status=int(f[1]),int(f[3]),int(f[4]),int(f[8]),int(f[10])
        if len(out)>=most: break
        n=int(f[7]) if int(f[7])>0 else procs
        if run<0 and status==5: continue
        run=max(run,1)
        run=min(run,req)
        out.append((submit,run,n,req))
    return out
def main():
    path,hosts,policy,most=sys.argv[1],int(sys.argv[2]),sys.argv[3],int(sys.argv[4])
    rules={'fcfs':dict(promises=0,backfills=False),'easy':dict(promises=1),'k4':dict(promises=4)}[policy]
    rng=random.Random(1)
    with tempfile.TemporaryDirectory(dir='/dev/shm') as d, ids_by(rng):
        conf=month.configuration(d,hosts,1)
        conf.set_override('failure_rate',0.0,group='simulated')
        conf.set_override('before_start_leads',[],group='manager')
        conf.set_override('minutes_before_end_lease',0,group='manager')
        conf.set_override('cleaning_time',0)
        conf.set_override('calendar_memory',sys.argv[5] if len(sys.argv)>5 else 'off',group='manager')
        clock=ManualClock(BEGIN); rt=bootstrap.make_runtime(conf,clock); rt.rng.seed(1)
        object.__setattr__(rt.settings,'wait_list',WaitListRules(**rules))
        schema.upgrade(rt.database)
        disp=Dispatcher(rt,'manager'); http=bootstrap.make_api(conf,rt).test_client()
        for n in range(1,hosts+1):
            a=http.post('/v1/os-hosts',json={'name':f'sim-{n}'}); assert a.status_code==201,a.text
        js=jobs(path,most); t0=js[0][0]
        wishes=[(s-t0,i,'ask') for i,(s,_,_,_) in enumerate(js)]; heapq.heapify(wishes)
        ids={}; started={}; ended={}; pend={}
        cloud=rt.plugins['physical:host'].cloud
        began=time.monotonic(); spent={'ask':0.,'run':0.,'pass':0.,'end':0.}
        def nxt():
            with rt.database.read() as s: return event_queue.next_run(s,clock.now())
        import sqlalchemy as sa
        from climate.db.tables.leases import LEASES
        def look():
            # find newly started
            with rt.database.read() as s:
                rows=s.execute(sa.select(LEASES.c.id,LEASES.c.start_at).where(LEASES.c.status=='ACTIVE',LEASES.c.id.in_(list(pend)) if len(pend)<900 else sa.true())).all()
            now=clock.now()
            for id_,st in rows:
                if id_ in pend:
                    i=pend.pop(id_); sec=(st-BEGIN).total_seconds(); started[i]=sec
                    s,run,n,req=js[i]
                    if run<req: heapq.heappush(wishes,(sec+run,i,'end'))
                    ended[i]=sec+run
        while True:
            ev=nxt(); ts=[]
            if ev is not None: ts.append((ev-BEGIN).total_seconds())
            if wishes: ts.append(wishes[0][0])
            if not ts: break
            now=min(ts); clock.set(BEGIN+timedelta(seconds=now))
            t=time.monotonic()
            while wishes and wishes[0][0]<=now:
                _,i,kind=heapq.heappop(wishes)
                if kind=='ask':
                    s,run,n,req=js[i]
                    a=http.post('/v2/leases',json={'name':f'l{i}','start':'asap','duration':req,'wait':{},'reservations':[{'resource_type':'physical:host','params':{'min':n,'max':n}}]},headers={'X-Auth-Token':'u:p'})
                    if a.status_code!=201: print(i,a.text[:300]); continue
                    ids[i]=a.get_json()['id']; pend[ids[i]]=i
                    spent['ask']+=time.monotonic()-t
                else:
                    a=http.patch(f'/v2/leases/{ids[i]}',json={'end':'now'},headers={'X-Auth-Token':'u:p'}); assert a.status_code==200,a.text
                    spent['end']+=time.monotonic()-t
                t=time.monotonic()
            while True:
                t=time.monotonic(); r=disp.run_due(); t2=time.monotonic(); p=place_waiting(rt); t3=time.monotonic()
                spent['run']+=t2-t; spent['pass']+=t3-t2
                if not (r+p): break
            look()
        waits=[started[i]-(js[i][0]-t0) for i in started]
        print(json.dumps(dict(policy=policy,jobs=len(js),started=len(started),wait_mean=round(statistics.mean(waits),2),slow=round(statistics.mean([max(1,(w+js[i][1])/max(js[i][1],10)) for i,w in zip(started,waits)]),2),makespan=max(ended.values()),wall=round(time.monotonic()-began,1),spent={k:round(v,1) for k,v in spent.items()},audit=list(violations(rt))[:3])))
        rt.close()
if len(sys.argv)>6: cProfile.run('main()','/tmp/r/prof'); pstats.Stats('/tmp/r/prof').sort_stats('cumtime').print_stats(45)
else: main()
