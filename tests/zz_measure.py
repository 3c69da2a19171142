import sys, time
from collections import Counter
sys.path.insert(0,"/work/main")
from tests.concurrency import booking
from tests.concurrency.crowd import Crowd, SIZE
from climate.db.engine import Database
from climate.db import engine
from tests import servers
from tests.unit.db import guard
from tests.unit.db.queue import add_hosts

def measured(number, name, *args):
    seen=Counter(); lat=[]
    orig=Database._write_once
    ow=Database.write
    def once(self, work, attempt):
        seen["attempts"]+=1
        if attempt==1: seen["writes"]+=1
        seen[f"att{attempt}"]+=1
        try: return orig(self,work,attempt)
        except Exception as e:
            if engine.is_transient(e):
                o=getattr(e,"orig",None)
                seen["E:"+(type(e).__name__ if o is None else f"{getattr(o,'sqlstate',None) or o.args[0]}")]+=1
            raise
    def write(self, work):
        t=time.perf_counter()
        try: return ow(self,work)
        finally: lat.append(time.perf_counter()-t)
    Database._write_once=once; Database.write=write
    try: out=getattr(booking,name)(number,*args)
    finally: Database._write_once=orig; Database.write=ow
    return out, seen, lat

if __name__=="__main__":
    crowd=Crowd()
    scen=[("spread 200 hosts",200,"book",lambda u:(u,20,1,True)),("book 5 hosts",5,"book",lambda u:(u,20,1,True)),("book_and_change 5",5,"book_and_change",lambda u:(u,24)),("same_window 1 of 200",200,"same_window",lambda u:(u,20)),("same_window 1..3 of 16",16,"same_window",lambda u:(u,2,3)), ("same_window 1..16 of 64",64,"same_window",lambda u:(u,2,16))]
    for b in sys.argv[1:]:
        for title,n,name,args in scen:
            url=servers.create(b) if b!="sqlite" else "sqlite:////tmp/m%d.sqlite"%time.time_ns()
            servers.migrate(url); d=Database(url); add_hosts(d,n)
            t=time.time()
            res=crowd.do(measured,name,*args(url))
            el=time.time()-t
            out=sum((r[0] for r in res),Counter()); seen=sum((r[1] for r in res),Counter()); lat=sorted(x for r in res for x in r[2])
            print(b,title,dict(out),f"{el:.1f}s", "retries/write %.2f"%((seen["attempts"]-seen["writes"])/seen["writes"]), "max attempt", max(int(k[3:]) for k in seen if k.startswith("att") and k!="attempts"), {k:v for k,v in seen.items() if k.startswith("E:")}, "p50 %.0f p99 %.0f max %.0f ms"%tuple(1000*lat[min(len(lat)-1,int(len(lat)*q))] for q in (.5,.99,1)), "overlaps",len(guard.overlaps(d)), flush=True)
            d.dispose()
    crowd.go(); servers.drop_all()
